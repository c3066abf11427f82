"""The real MiniLM without torch, compared with sentence_transformers on the CPU."""

import os
import pathlib
import subprocess
import sys
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples/minilm.py"
sys.path.insert(0, str(EXAMPLE.parent))
os.environ["HF_HUB_OFFLINE"] = "1"

import minilm  # noqa: E402

SENTENCES = [*minilm.SENTENCES, "", "word", "Zürich, 東京 and naïve café: 3.14!", "A sentence that goes on. " * 60]


class MiniLM(unittest.TestCase):
    def test_vectors_are_those_of_sentence_transformers(self):
        from sentence_transformers import SentenceTransformer
        vectors = minilm.MiniLM(minilm.default_folder()).encode(SENTENCES, batch=4)
        expected = SentenceTransformer(str(minilm.default_folder()), device="cpu").encode(SENTENCES, normalize_embeddings=True)
        self.assertEqual(vectors.shape, (len(SENTENCES), 384))
        for sentence, cosine in zip(SENTENCES, (vectors * expected).sum(axis=1)):
            self.assertGreaterEqual(cosine, 0.9999, sentence)
            self.assertLess(cosine, 1.0001, sentence)

    def test_the_example_finds_similar_sentences_without_torch(self):
        code = f"import runpy, sys; sys.argv = ['minilm.py']; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__'); assert 'torch' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"The cat sleeps .*\n +0\.\d+  A kitten naps in the sunlight\.")


if __name__ == "__main__":
    unittest.main()
