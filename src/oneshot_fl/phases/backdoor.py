"""How often the server falls for a backdoor: what it says of images of other classes that carry the trigger."""

import torch
from torch import nn

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.parts.attacks import Trigger
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.evaluate import evaluate


def backdoor_success(trigger: Trigger, data: Dataset, server: nn.Module, *, batch_size: int, context: Context) -> float:
    """Share of the test images of other classes that the server takes for the target once they carry the trigger."""
    others = data.test_labels != trigger.target
    images = trigger.triggered(data.test_images[others])
    wanted = torch.full_like(data.test_labels[others], trigger.target)
    batches = ImageBatches(images, wanted, spec=data.spec, batch_size=batch_size)
    return evaluate(batches, [], server, {}, context=context).accuracies.server
