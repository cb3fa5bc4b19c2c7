"""First code of every process that decides something. Executed by path with ``python -I -S``, never imported.

``bootstrap.py MODULE JSON``: the JSON list holds the folders to import from, named by whoever starts it. No ``.pth``
file, ``sitecustomize``, ``PYTHON*`` variable or module in the working folder is ever read.
"""

import ctypes
import json
import os
import runpy
import sys

PR_SET_PDEATHSIG, SIGKILL = 1, 9

if __name__ == "__main__":
    parent = os.getppid()
    # Whoever wants the answer is gone: nobody is left to tell, and servers must not stay behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    module, paths = sys.argv[1], json.loads(sys.argv[2])
    del sys.argv[1:3]
    sys.path += [path for path in paths if path not in sys.path]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
