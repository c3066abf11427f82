"""torchmetrics: metrics that are updated on the device."""

import unittest
import warnings

import torch
import torchmetrics
from program import ProgramTest, seed
from torchmetrics import classification, image, regression, text

warnings.filterwarnings("ignore", ".*torchmetrics.*")


class MetricTest(ProgramTest):
    def metric(self, make, data):
        def program(device):
            seed()
            metric = make().to(device)
            for _ in range(2):
                metric.update(*(each.to(device) for each in data()))
            return metric.compute()
        with self.subTest(make().__class__.__name__):
            self.check(program)

    def test_classification(self):
        def data():
            return torch.randn(32, 4).softmax(1), torch.randint(0, 4, (32,))
        for make in (lambda: classification.MulticlassAccuracy(4), lambda: classification.MulticlassF1Score(4), lambda: classification.MulticlassConfusionMatrix(4),
                     lambda: classification.MulticlassAUROC(4, thresholds=10), lambda: classification.MulticlassAveragePrecision(4),
                     lambda: classification.MulticlassCohenKappa(4), lambda: classification.MulticlassMatthewsCorrCoef(4),
                     lambda: classification.MulticlassCalibrationError(4)):
            self.metric(make, data)

    def test_binary(self):
        def data():
            return torch.rand(64), torch.randint(0, 2, (64,))
        for make in (classification.BinaryAUROC, classification.BinaryPrecisionRecallCurve, classification.BinaryF1Score):
            self.metric(make, data)

    def test_regression(self):
        def data():
            return torch.randn(32), torch.randn(32)
        for make in (regression.MeanSquaredError, regression.PearsonCorrCoef, regression.R2Score, regression.SpearmanCorrCoef, torchmetrics.MeanMetric):
            self.metric(make, data if make is not torchmetrics.MeanMetric else lambda: (torch.randn(8),))

    def test_images(self):
        def data():
            return torch.rand(2, 3, 24, 24), torch.rand(2, 3, 24, 24)
        for make in (lambda: image.PeakSignalNoiseRatio(1.0), lambda: image.StructuralSimilarityIndexMeasure(data_range=1.0)):
            self.metric(make, data)

    def test_perplexity(self):
        self.metric(text.Perplexity, lambda: (torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))))

    def test_a_collection(self):
        def program(device):
            seed()
            metrics = torchmetrics.MetricCollection([classification.MulticlassAccuracy(3), classification.MulticlassRecall(3)]).to(device)
            return metrics(torch.randn(16, 3).to(device), torch.randint(0, 3, (16,)).to(device))
        self.check(program)


if __name__ == "__main__":
    unittest.main()
