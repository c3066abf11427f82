"""diffusers: denoisers and autoencoders from configurations; a step of training; pipelines with schedulers."""

import tempfile
import unittest

import diffusers
import torch
import transformers
from program import ProgramTest, seed

diffusers.utils.logging.set_verbosity_error()
diffusers.utils.logging.disable_progress_bar()


def unet():
    return diffusers.UNet2DModel(sample_size=16, in_channels=3, out_channels=3, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
                                 down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))


def conditional_unet():
    return diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=16,
        attention_head_dim=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))


def autoencoder():
    return diffusers.AutoencoderKL(in_channels=3, out_channels=3, block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4, sample_size=16,
                                   down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)


def quiet(pipe):
    pipe.set_progress_bar_config(disable=True)
    return pipe


class DiffusersTest(ProgramTest):
    def test_a_denoiser_is_trained(self):
        def program(device):
            seed()
            model, scheduler = unet().to(device), diffusers.DDPMScheduler()
            optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
            images, noise = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
            for _ in range(3):
                times = torch.tensor([10, 700], device=device)
                noisy = scheduler.add_noise(images.to(device), noise.to(device), times)
                loss = torch.nn.functional.mse_loss(model(noisy, times).sample, noise.to(device))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            return torch.stack(losses)
        self.check(program, 1e-3)

    def test_pipelines_of_schedulers(self):
        for scheduler in (diffusers.DDPMScheduler, diffusers.DDIMScheduler):
            def program(device):
                seed()
                kind = diffusers.DDPMPipeline if scheduler is diffusers.DDPMScheduler else diffusers.DDIMPipeline
                pipe = quiet(kind(unet().eval(), scheduler())).to(device)
                return torch.as_tensor(pipe(batch_size=1, generator=torch.Generator().manual_seed(1), num_inference_steps=4, output_type="np").images)
            with self.subTest(scheduler.__name__):
                self.check(program, 2e-3)

    def test_latent_diffusion(self):
        def program(device):
            seed()
            text = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                                                          num_attention_heads=2, max_position_embeddings=8, eos_token_id=49)).eval()
            pipe = quiet(diffusers.StableDiffusionPipeline(
                vae=autoencoder().eval(), text_encoder=text, tokenizer=None, unet=conditional_unet().eval(),
                scheduler=diffusers.EulerDiscreteScheduler(), safety_checker=None, feature_extractor=None, requires_safety_checker=False)).to(device)
            embedded = [pipe.text_encoder(torch.tensor([ids], device=device)).last_hidden_state for ids in ([1, 2, 3, 49], [4, 5, 6, 49])]
            images = pipe(prompt_embeds=embedded[0], negative_prompt_embeds=embedded[1], height=16, width=16, num_inference_steps=3, guidance_scale=4.0,
                          generator=torch.Generator().manual_seed(1), output_type="np").images
            return torch.as_tensor(images)
        self.check(program, 5e-3)

    def test_autoencoder(self):
        def program(device):
            seed()
            model, images = autoencoder().to(device), torch.randn(1, 3, 16, 16)
            latent = model.encode(images.to(device)).latent_dist
            decoded = model.decode(latent.mode()).sample
            (decoded.square().mean() + latent.kl().mean()).backward()
            return decoded, latent.mean, model.encoder.conv_in.weight.grad
        self.check(program, 1e-3)

    def test_a_model_is_saved_loaded_and_offloaded(self):
        def program(device):
            seed()
            with tempfile.TemporaryDirectory() as folder:
                quiet(diffusers.DDPMPipeline(unet(), diffusers.DDPMScheduler())).save_pretrained(folder)
                pipe = quiet(diffusers.DDPMPipeline.from_pretrained(folder)).to(device)
                model = diffusers.UNet2DModel.from_pretrained(folder, subfolder="unet", device_map={"": device})
            ones = torch.ones(1, 3, 16, 16, device=device)
            return pipe.unet(ones, 5).sample - model(ones, 5).sample
        self.check(program, 1e-5)

    def test_generators_of_the_device(self):
        pipe = quiet(diffusers.DDIMPipeline(unet().eval(), diffusers.DDIMScheduler())).to("xpud")
        images = [pipe(generator=torch.Generator("xpud").manual_seed(3), num_inference_steps=2, output_type="np").images for _ in range(2)]
        torch.testing.assert_close(*map(torch.as_tensor, images), atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
