"""transformers: training with Trainer, pipelines, generation, and loading onto the device."""

import tempfile
import unittest

import torch
import transformers
from accelerate.state import AcceleratorState
from program import ProgramTest, seed
from tokenizers import Tokenizer, models, pre_tokenizers

transformers.logging.set_verbosity_error()
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog sat ran on under mat tree and good bad film book was".split()
TEXTS = ["the cat sat on the mat", "a dog ran under the tree", "the film was good", "a bad book"]


def tokenizer():
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                                mask_token="[MASK]", model_max_length=32)


def classifier():
    config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                     max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    return transformers.BertForSequenceClassification(config)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=len(WORDS), n_positions=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=2,
        eos_token_id=3, pad_token_id=0)).eval()


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, bos_token_id=2, eos_token_id=3, pad_token_id=0)).eval()


def examples(count=32):
    encoded = tokenizer()(TEXTS * (count // len(TEXTS)), padding="max_length", max_length=8)
    return [{"input_ids": ids, "attention_mask": mask, "labels": index % 2}
            for index, (ids, mask) in enumerate(zip(encoded["input_ids"], encoded["attention_mask"]))]


class Losses(transformers.TrainerCallback):
    def __init__(self):
        self.values = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.values += [logs[key] for key in ("loss", "eval_loss") if key in (logs or {})]


def train(device, model=None, **options):
    """Trains with Trainer's own choice of device; use_cpu is the only difference. Returns the trainer and its losses."""
    AcceleratorState._reset_state(reset_partial_state=True)  # a process chooses its device once
    losses = Losses()
    seed()
    with tempfile.TemporaryDirectory() as folder:
        options = dict(max_steps=6, logging_steps=2, save_strategy="no", report_to=[], disable_tqdm=True) | options
        arguments = transformers.TrainingArguments(output_dir=options.pop("output_dir", folder), per_device_train_batch_size=8, learning_rate=1e-2,
                                                   use_cpu=device == "cpu", **options)
        trainer = transformers.Trainer(model=model or classifier(), args=arguments, train_dataset=examples(), eval_dataset=examples(8), callbacks=[losses])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return trainer, losses.values


class TrainerTest(ProgramTest):
    def test_it_trains_on_the_device_without_being_told(self):
        trainer, _ = train("xpud", max_steps=1)
        self.assertEqual(trainer.args.device.type, "xpud")
        self.assertEqual({parameter.device.type for parameter in trainer.model.parameters()}, {"xpud"})

    def test_losses(self):
        def program(device):
            trainer, losses = train(device, eval_strategy="steps", eval_steps=3, weight_decay=0.01)
            return losses, trainer.evaluate()["eval_loss"], list(trainer.model.parameters())
        self.check(program, 2e-3)

    def test_bfloat16(self):
        self.check(lambda device: train(device, bf16=True)[1], 5e-2)

    def test_float16_scales_gradients(self):
        trainer, losses = train("xpud", fp16=True)
        self.assertTrue(trainer.accelerator.scaler.is_enabled())
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len(list(trainer.model.parameters())), sum(p.grad is None or p.grad.isfinite().all().item() for p in trainer.model.parameters()))

    def test_gradient_checkpointing_and_accumulation(self):
        self.check(lambda device: train(device, gradient_checkpointing=True, gradient_accumulation_steps=2, max_steps=4)[1], 2e-3)

    def test_a_checkpoint_continues_with_the_same_random_numbers(self):
        def dropping():
            model = classifier()
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.3
            return model
        with tempfile.TemporaryDirectory() as folder:
            _, whole = train("xpud", dropping(), output_dir=folder, save_strategy="steps", save_steps=4, max_steps=8)
            seed()
            torch.xpud.manual_seed(77)
            losses = Losses()
            arguments = transformers.TrainingArguments(output_dir=folder, per_device_train_batch_size=8, learning_rate=1e-2, max_steps=8, logging_steps=2,
                                                       save_strategy="no", report_to=[], disable_tqdm=True)
            trainer = transformers.Trainer(model=dropping(), args=arguments, train_dataset=examples(), callbacks=[losses])
            trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-4")
        self.assertEqual(whole[-2:], losses.values[-2:])


class PipelineTest(ProgramTest):
    def test_the_default_device_is_xpud(self):
        pipe = transformers.pipeline("text-classification", model=classifier(), tokenizer=tokenizer())
        self.assertEqual(pipe.device.type, "xpud")
        self.assertEqual(transformers.pipeline("text-classification", model=classifier(), tokenizer=tokenizer(), device=-1).device.type, "cpu")

    def test_classification(self):
        self.check(lambda device: transformers.pipeline("text-classification", model=classifier().eval(), tokenizer=tokenizer(), device=device)(TEXTS))

    def test_text_generation(self):
        def program(device):
            pipe = transformers.pipeline("text-generation", model=gpt2(), tokenizer=tokenizer(), device=device)
            return pipe("the cat", max_new_tokens=8, do_sample=False)
        self.check(program)

    def test_masked_words(self):
        def program(device):
            config = transformers.BertConfig(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
            return transformers.pipeline("fill-mask", model=transformers.BertForMaskedLM(config).eval(), tokenizer=tokenizer(), device=device)("the [MASK] sat")
        self.check(program)


class GenerateTest(ProgramTest):
    def generate(self, make, **options):
        def program(device):
            inputs = tokenizer()(["the cat sat", "a dog"], return_tensors="pt", padding=True, padding_side="left").to(device)
            return make().to(device).generate(inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=8, **options)
        self.check(program)

    def test_greedy(self):
        self.generate(gpt2, do_sample=False)
        self.generate(llama, do_sample=False)

    def test_beam(self):
        self.generate(llama, do_sample=False, num_beams=3, num_return_sequences=2)

    def test_penalties(self):
        self.generate(gpt2, do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=4)

    def test_static_cache(self):
        self.generate(llama, do_sample=False, cache_implementation="static", disable_compile=True)

    def test_assisted(self):
        def program(device):
            model = llama().to(device)
            seed()
            assistant = llama().to(device)
            inputs = tokenizer()(["the cat sat"], return_tensors="pt").to(device)
            return model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=8, do_sample=False, assistant_model=assistant)
        self.check(program)

    def test_sampled_tokens_are_likely_ones(self):
        def program(device):
            model = gpt2().to(device)
            inputs = tokenizer()(["the cat"] * 16, return_tensors="pt").to(device)
            tokens = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, do_sample=True, top_k=5, top_p=0.9, temperature=0.8,
                                    max_new_tokens=1)
            best = model(inputs.input_ids).logits[:, -1].topk(5).indices
            return (tokens[:, -1:] == best).any(-1).all().item()
        self.assertTrue(self.check(program))


class LoadingTest(ProgramTest):
    def load(self, make=llama, **options):
        seed()
        with tempfile.TemporaryDirectory() as folder:
            make().save_pretrained(folder)
            return transformers.AutoModelForCausalLM.from_pretrained(folder, **options)

    def test_device_map(self):
        for device_map in ("xpud", "auto", 0, {"": "xpud:0"}):
            model = self.load(device_map=device_map)
            self.assertEqual({parameter.device for parameter in model.parameters()}, {torch.device("xpud:0")}, device_map)

    def test_the_weights_are_those_of_the_file(self):
        self.check(lambda device: dict(self.load(device_map=device).state_dict()), 0)

    def test_half_precision(self):
        def program(device):
            model = self.load(device_map=device, dtype=torch.bfloat16)
            return model(torch.tensor([[2, 5, 7]], device=device)).logits.float()
        self.check(program, 2e-2)

    def test_layers_on_the_host_and_on_the_device(self):
        def program(device):
            model = self.load(device_map={"model.embed_tokens": device, "model.layers.0": device, "model.layers.1": "cpu", "model.norm": device,
                                          "model.rotary_emb": device, "lm_head": device})
            return model(torch.tensor([[2, 5, 7]], device=device)).logits
        self.check(program)


if __name__ == "__main__":
    unittest.main()
