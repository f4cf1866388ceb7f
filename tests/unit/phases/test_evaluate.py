import torch

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.evaluate import evaluate


def test_accuracies_are_fractions_of_the_test_set(spec, context, fixed_logits):
    labels = torch.tensor([0, 0, 0, 1, 2])
    test = ImageBatches(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), labels, spec=spec, batch_size=2)
    says_0, says_1 = fixed_logits([1.0, 0.0, 0.0]), fixed_logits([0.0, 5.0, 0.0])
    ensembles = {"uniform": LogitAverage(Uploads([], [1, 1]))}  # mean logits [.5, 2.5, 0]: class 1
    result = evaluate(test, [says_0, says_1], fixed_logits([0.0, 0.0, 1.0]), ensembles, context=context)
    assert result.clients == [0.6, 0.2]
    assert result.ensembles == {"uniform": 0.2}
    assert result.server == 0.2
