"""sentence-transformers: embeddings, search, and training on the device that it chooses itself."""

import tempfile
import unittest

import sentence_transformers
import torch
import transformers
from accelerate.state import AcceleratorState
from program import ProgramTest, seed
from sentence_transformers import SentenceTransformer, losses, util
from sentence_transformers.util import get_device_name
from test_transformers import TEXTS, WORDS, tokenizer


def model(device):
    seed()
    config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        return SentenceTransformer(folder, device=device)


class SentenceTest(ProgramTest):
    def test_the_default_device_is_xpud(self):
        self.assertEqual(get_device_name(), "xpud:0")
        self.assertEqual(model(None).device, torch.device("xpud:0"))

    def test_embeddings_and_search(self):
        def program(device):
            own = model(device)
            embedded = own.encode(TEXTS, convert_to_tensor=True, normalize_embeddings=True)
            found = util.semantic_search(embedded, embedded, top_k=2)
            return embedded, own.similarity(embedded, embedded), [[hit["corpus_id"] for hit in hits] for hits in found]
        self.check(program)

    def test_training(self):
        def program(device):
            from datasets import Dataset
            AcceleratorState._reset_state(reset_partial_state=True)
            own = model(device)
            with tempfile.TemporaryDirectory() as folder:
                arguments = sentence_transformers.SentenceTransformerTrainingArguments(
                    output_dir=folder, max_steps=4, per_device_train_batch_size=4, learning_rate=1e-3, report_to=[], use_cpu=device == "cpu",
                    disable_tqdm=True, save_strategy="no", logging_strategy="no")
                trainer = sentence_transformers.SentenceTransformerTrainer(
                    model=own, args=arguments, train_dataset=Dataset.from_dict({"anchor": TEXTS * 2, "positive": TEXTS[::-1] * 2}),
                    loss=losses.MultipleNegativesRankingLoss(own))
                trainer.train()
            self.assertEqual(own.device.type, device)
            return own.encode(TEXTS, convert_to_tensor=True)
        self.check(program, 1e-3)


if __name__ == "__main__":
    unittest.main()
