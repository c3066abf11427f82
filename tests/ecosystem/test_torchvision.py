"""torchvision beside a torch without CUDA: models, detection with nms and roi_align, transforms."""

import unittest

import torch
import torchvision
from program import FULL, ProgramTest, seed
from torchvision import ops
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.transforms import v2


def greedy(boxes, scores, threshold):
    """Suppression box by box, as a reference."""
    overlap, kept = ops.box_iou(boxes, boxes), []
    for index in torch.argsort(scores, descending=True).tolist():
        if all(overlap[index, other] <= threshold for other in kept):
            kept.append(index)
    return kept


def sampled(image, box, bins, scale, samples, aligned):
    """roi_align of one channel and one region, point by point, as a reference."""
    height, width = image.shape
    offset = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (value * scale - offset for value in box)
    roi_height, roi_width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1), max(x2 - x1, 1))
    counts = [samples if samples > 0 else max(0, -int(-(length // n)) if length % n == 0 else int(length // n) + 1)
              for length, n in ((roi_height, bins[0]), (roi_width, bins[1]))]
    result = torch.zeros(bins, dtype=image.dtype)
    for row in range(bins[0]):
        for column in range(bins[1]):
            for i in range(counts[0]):
                for j in range(counts[1]):
                    y = y1 + (row + (i + 0.5) / counts[0]) * roi_height / bins[0]
                    x = x1 + (column + (j + 0.5) / counts[1]) * roi_width / bins[1]
                    if y < -1 or y > height or x < -1 or x > width:
                        continue
                    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                    top, left = int(y), int(x)
                    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
                    dy, dx = y - top, x - left
                    result[row, column] += ((1 - dy) * (1 - dx) * image[top, left] + (1 - dy) * dx * image[top, right]
                                            + dy * (1 - dx) * image[bottom, left] + dy * dx * image[bottom, right])
    return result / max(counts[0] * counts[1], 1)


class OperatorTest(ProgramTest):
    def test_nms_is_the_greedy_one(self):
        def program(device):
            seed()
            boxes, scores = torch.rand(300, 4) * 40, torch.rand(300)
            boxes[:, 2:] += boxes[:, :2]
            kept = ops.nms(boxes.to(device), scores.to(device), 0.3)
            self.assertEqual(kept.tolist(), greedy(boxes, scores, 0.3))
            return kept, ops.batched_nms(boxes.to(device), scores.to(device), (torch.arange(300) % 3).to(device), 0.4)
        self.check(program)

    def test_nms_of_several_blocks(self):
        def program(device):
            seed()
            boxes, scores = torch.rand(2500, 4) * 300, torch.rand(2500)
            boxes[:, 2:] = boxes[:, :2] + 20
            return ops.nms(boxes.to(device), scores.to(device), 0.2)
        kept = self.check(program)
        self.assertGreater(len(kept), 100)

    def test_nms_of_nothing(self):
        self.check(lambda device: ops.nms(torch.zeros(0, 4, device=device), torch.zeros(0, device=device), 0.5))

    def test_roi_align_samples_as_defined(self):
        seed()
        image = torch.randn(1, 1, 9, 12)
        for box in ((1.0, 2.0, 14.0, 9.0), (-6.0, -4.0, 30.0, 25.0), (4.0, 4.0, 4.2, 4.1)):
            for samples in (2, -1):
                for aligned in (False, True):
                    regions = torch.tensor([[0.0, *box]])
                    found = ops.roi_align(image.to("xpud"), regions.to("xpud"), (3, 2), 0.5, samples, aligned)
                    torch.testing.assert_close(found.cpu()[0, 0], sampled(image[0, 0], box, (3, 2), 0.5, samples, aligned), atol=1e-4, rtol=1e-4)

    def test_roi_align_gradients(self):
        def program(device):
            seed()
            features = torch.randn(2, 3, 10, 8).to(device).requires_grad_()
            regions = torch.tensor([[0, 1.0, 1, 9, 15], [1, 0, 0, 5, 5], [1, 3, 2, 14, 18]], device=device)
            pooled = ops.roi_align(features, regions, 4, 0.5, 2, True)
            pooled.square().sum().backward()
            return pooled, features.grad
        self.check(program)

    def test_roi_align_in_half_precision(self):
        features, regions = torch.randn(1, 4, 8, 8), torch.tensor([[0.0, 1, 1, 6, 6]])
        expected = ops.roi_align(features, regions, 2)
        with torch.autocast("xpud", torch.bfloat16):
            found = ops.roi_align(features.to("xpud").bfloat16(), regions.to("xpud"), 2)
        self.assertEqual(found.dtype, torch.bfloat16)
        torch.testing.assert_close(found.cpu().float(), expected, atol=5e-2, rtol=5e-2)

    def test_an_operator_without_a_kernel_says_so(self):
        with self.assertRaisesRegex(NotImplementedError, "torchvision::deform_conv2d"):
            ops.deform_conv2d(torch.ones(1, 1, 4, 4, device="xpud"), torch.zeros(1, 2, 4, 4, device="xpud"), torch.ones(1, 1, 1, 1, device="xpud"))


def step(model, inputs, labels):
    """One step of training in which the gradients, not only the loss, are compared."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


class ModelTest(ProgramTest):
    def classify(self, make, size=32):
        def program(device):
            seed()
            images, labels = torch.randn(4, 3, size, size), torch.randint(0, 5, (4,))
            model = make().to(device)
            losses = step(model, images.to(device), labels.to(device))
            model.eval()
            with torch.no_grad():
                return losses, model(images.to(device))
        self.check(program, 5e-3)

    def test_resnet(self):
        self.classify(lambda: torchvision.models.resnet18(num_classes=5), size=96)

    def test_vit(self):
        self.classify(lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5))

    @unittest.skipUnless(FULL, "with XPUD_TEST_FULL")
    def test_more_classifiers(self):
        for make in (torchvision.models.mobilenet_v3_small, torchvision.models.shufflenet_v2_x0_5, torchvision.models.squeezenet1_1):
            with self.subTest(make.__name__):
                seed()
                model = make(num_classes=5).eval()
                images = torch.randn(2, 3, 64, 64)
                with torch.no_grad():
                    torch.testing.assert_close(model.to("xpud")(images.to("xpud")).cpu(), model.to("cpu")(images), atol=1e-3, rtol=1e-3)

    def test_detector(self):
        def program(device):
            seed()
            backbone = torchvision.models.squeezenet1_1().features[:6]
            backbone.out_channels = 128
            model = FasterRCNN(backbone, num_classes=3, min_size=64, max_size=96, box_detections_per_img=10, box_score_thresh=0.0,
                               rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0, 2.0),)),
                               box_roi_pool=ops.MultiScaleRoIAlign(["0"], 3, 2), rpn_pre_nms_top_n_train=50, rpn_post_nms_top_n_train=20,
                               rpn_pre_nms_top_n_test=50, rpn_post_nms_top_n_test=20, rpn_batch_size_per_image=10 ** 4,
                               box_batch_size_per_image=10 ** 4).to(device)
            images = [torch.rand(3, 64, 72).to(device), torch.rand(3, 60, 64).to(device)]
            targets = [{"boxes": torch.tensor([[4.0, 6, 40, 50]]).to(device), "labels": torch.tensor([1]).to(device)},
                       {"boxes": torch.tensor([[10.0, 10, 30, 40], [2, 2, 20, 20]]).to(device), "labels": torch.tensor([2, 1]).to(device)}]
            losses = model(images, targets)
            sum(losses.values()).backward()
            gradient = model.rpn.head.cls_logits.weight.grad
            model.eval()
            with torch.no_grad():
                found = model(images)
            return losses, gradient, [sorted(one["scores"].tolist()) for one in found]
        self.check(program, 5e-3)

    def test_functions_are_compiled_by_torchscript(self):
        seed()
        boxes, scores = torch.rand(20, 4, device="xpud") * 20, torch.rand(20, device="xpud")
        boxes[:, 2:] += boxes[:, :2]
        classes = torch.arange(20, device="xpud") % 3
        regions = torch.cat([torch.zeros(20, 1, device="xpud"), boxes], 1)
        for function, arguments in ((ops.nms, (boxes, scores, 0.3)), (ops.batched_nms, (boxes, scores, classes, 0.3)), (ops.box_iou, (boxes, boxes)),
                                    (ops.RoIAlign((2, 2), 1.0, 2), (torch.rand(1, 3, 24, 24, device="xpud"), regions))):
            with self.subTest(function=function):
                torch.testing.assert_close(torch.jit.script(function)(*arguments), function(*arguments))
        torch.jit.script(torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None))

    def test_transforms(self):
        def program(device):
            seed()
            images = torch.randint(0, 256, (2, 3, 24, 20), dtype=torch.uint8).to(device)
            results = [v2.functional.resize(images, [12, 16]), v2.functional.horizontal_flip(images), v2.functional.adjust_brightness(images, 1.3),
                       v2.functional.gaussian_blur(images.float(), [3, 3]), v2.functional.rotate(images.float(), 30),
                       v2.functional.normalize(v2.functional.to_dtype(images, torch.float32, scale=True), [0.5] * 3, [0.5] * 3)]
            return [result.float() for result in results]
        self.check(program, 1.0)


if __name__ == "__main__":
    unittest.main()
