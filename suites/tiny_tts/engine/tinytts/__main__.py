"""Command line: ``python -m tinytts --port 8000``."""

import argparse

import torch
import uvicorn

from tinytts.api import create_app


def main():
    parser = argparse.ArgumentParser(prog="tinytts", description="OpenAI-style speech server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of one operation")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here; use --device cpu")
    torch.set_num_threads(args.threads)
    uvicorn.run(create_app(args.device), host=args.host, port=args.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
