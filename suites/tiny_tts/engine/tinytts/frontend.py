"""Text to sentences, phonemes and ids."""

import re

from tinytts.weights import load_phoneme_ids

SENTENCE = re.compile(r"(?<=[.!?;])\s+")
PAD, BEGIN, END = "_", "^", "$"


class Frontend:
    def __init__(self):
        # espeak-ng, as the wheel piper-tts brings it; imported late, since only this stage needs it.
        from piper.phonemize_espeak import EspeakPhonemizer

        self.phonemizer = EspeakPhonemizer()
        self.ids = load_phoneme_ids()

    def run(self, text):
        """Return the phoneme ids of every sentence of a text that has something to say."""
        sentences = [part for part in SENTENCE.split(text.strip()) if part]
        return [ids for sentence in sentences for ids in self.sentence(sentence)]

    def sentence(self, text):
        for phonemes in self.phonemizer.phonemize("en-us", text):
            ids = list(self.ids[BEGIN]) + list(self.ids[PAD])
            for phoneme in phonemes:
                if phoneme in self.ids:
                    ids += self.ids[phoneme] + self.ids[PAD]
            if any(phoneme.isalpha() for phoneme in phonemes):
                yield ids + self.ids[END]
