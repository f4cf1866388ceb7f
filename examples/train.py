"""A client's own training, in plain PyTorch: nothing here knows of oneshot_fl, which takes the model afterwards.

python train.py FOLDER model.pt        (FOLDER/<class>/*: colour images of 32x32 pixels)
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import to_tensor

data = ImageFolder(sys.argv[1], transform=lambda picture: (to_tensor(picture) - 0.5) / 0.5)
images, labels = (torch.stack(part) for part in zip(*((x, torch.tensor(y)) for x, y in data), strict=True))
torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(3, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(32 * 8 * 8, len(data.classes))),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(10):
    for index in torch.randperm(len(labels)).split(64):
        optimizer.zero_grad()
        F.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()
torch.save(model.state_dict(), sys.argv[2])
counts = torch.bincount(labels)
print("classes:", ",".join(data.classes), "counts:", ",".join(str(int(each)) for each in counts))
