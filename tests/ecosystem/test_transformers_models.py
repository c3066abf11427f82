"""transformers: one step of training of small models of many kinds."""

import unittest

import torch
import transformers
from program import ProgramTest, seed

transformers.logging.set_verbosity_error()

TEXT = dict(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
KV = TEXT | dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
OFF = dict(attention_dropout=0.0)
HIDDEN_OFF = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TOKENS = [[5, 7, 9, 11, 13, 4], [6, 8, 10, 12, 14, 3]]


def tokens(device):
    return dict(input_ids=torch.tensor(TOKENS, device=device), labels=torch.tensor(TOKENS, device=device))


def classes(device):
    return dict(input_ids=torch.tensor(TOKENS, device=device), labels=torch.tensor([0, 1], device=device))


def pixels(device):
    seed()
    return dict(pixel_values=torch.randn(2, 3, 32, 32).to(device), labels=torch.tensor([0, 1], device=device))


def sound(device):
    seed()
    return dict(input_features=torch.randn(2, 8, 64).to(device), labels=torch.tensor(TOKENS, device=device))


def wave(device):
    seed()
    return dict(input_values=torch.randn(2, 800).to(device), labels=torch.tensor([[3, 4, 5], [6, 7, 8]], device=device))


def pairs(device):
    seed()
    return dict(input_ids=torch.tensor(TOKENS, device=device), pixel_values=torch.randn(2, 3, 32, 32).to(device), return_loss=True)


def clip():
    return transformers.CLIPConfig(text_config=TEXT | dict(eos_token_id=4, bos_token_id=1, pad_token_id=0, projection_dim=16),
                                   vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, image_size=32,
                                                      patch_size=8, projection_dim=16), projection_dim=16)


# name: the class of the model, its configuration, its inputs
MODELS = {
    "BertForMaskedLM": (lambda: transformers.BertConfig(**TEXT, **HIDDEN_OFF), tokens),
    "RobertaForSequenceClassification": (lambda: transformers.RobertaConfig(**TEXT, **HIDDEN_OFF, pad_token_id=0), classes),
    "DebertaV2ForSequenceClassification": (lambda: transformers.DebertaV2Config(**TEXT, **HIDDEN_OFF, relative_attention=True, pos_att_type=["p2c", "c2p"]), classes),
    "DistilBertForMaskedLM": (lambda: transformers.DistilBertConfig(vocab_size=40, dim=32, hidden_dim=64, n_layers=2, n_heads=4, dropout=0.0, attention_dropout=0.0), tokens),
    "ModernBertForMaskedLM": (lambda: transformers.ModernBertConfig(**TEXT, pad_token_id=0), tokens),
    "GPT2LMHeadModel": (lambda: transformers.GPT2Config(vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), tokens),
    "GPTNeoXForCausalLM": (lambda: transformers.GPTNeoXConfig(**TEXT), tokens),
    "LlamaForCausalLM": (lambda: transformers.LlamaConfig(**KV), tokens),
    "MistralForCausalLM": (lambda: transformers.MistralConfig(**KV, sliding_window=4), tokens),
    "MixtralForCausalLM": (lambda: transformers.MixtralConfig(**KV, num_local_experts=4, output_router_logits=True), tokens),
    "Qwen2ForCausalLM": (lambda: transformers.Qwen2Config(**KV), tokens),
    "Gemma2ForCausalLM": (lambda: transformers.Gemma2Config(**KV, head_dim=8), tokens),
    "PhiForCausalLM": (lambda: transformers.PhiConfig(**TEXT, resid_pdrop=0.0, embd_pdrop=0.0), tokens),
    "BloomForCausalLM": (lambda: transformers.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4), tokens),
    "FalconForCausalLM": (lambda: transformers.FalconConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4), tokens),
    "OPTForCausalLM": (lambda: transformers.OPTConfig(vocab_size=40, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
                                                      max_position_embeddings=32, dropout=0.0), tokens),
    "MambaForCausalLM": (lambda: transformers.MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=4), tokens),
    "T5ForConditionalGeneration": (lambda: transformers.T5Config(vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                                                                 decoder_start_token_id=0), tokens),
    "BartForConditionalGeneration": (lambda: transformers.BartConfig(vocab_size=40, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                                                                     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, dropout=0.0,
                                                                     max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                                                                     decoder_start_token_id=2, forced_eos_token_id=2), tokens),
    "ViTForImageClassification": (lambda: transformers.ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                                                                 patch_size=8, num_labels=3, **HIDDEN_OFF), pixels),
    "SwinForImageClassification": (lambda: transformers.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4,
                                                                   drop_path_rate=0.0, num_labels=3), pixels),
    "ConvNextForImageClassification": (lambda: transformers.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], image_size=32, num_labels=3), pixels),
    "ResNetForImageClassification": (lambda: transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3), pixels),
    "SegformerForImageClassification": (lambda: transformers.SegformerConfig(hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16, num_labels=3,
                                                                             drop_path_rate=0.0, classifier_dropout_prob=0.0), pixels),
    "CLIPModel": (clip, pairs),
    "WhisperForConditionalGeneration": (lambda: transformers.WhisperConfig(
        vocab_size=40, d_model=32, num_mel_bins=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_source_positions=32, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=[], begin_suppress_tokens=[]), sound),
    "Wav2Vec2ForCTC": (lambda: transformers.Wav2Vec2Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, conv_dim=[16, 16], conv_stride=[4, 4], conv_kernel=[8, 8],
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, layerdrop=0.0, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0,
        activation_dropout=0.0, final_dropout=0.0, feat_extract_norm="layer"), wave),
}


class ModelTest(ProgramTest):
    def test_a_step_of_training(self):
        for name, (config, inputs) in MODELS.items():
            def program(device):
                seed()
                model = getattr(transformers, name)(config()).to(device)
                optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
                for _ in range(2):
                    loss = model(**inputs(device)).loss
                    optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    losses.append(loss.detach())
                return torch.stack(losses)
            with self.subTest(name):
                self.check(program, 1e-3)


if __name__ == "__main__":
    unittest.main()
