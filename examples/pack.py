"""Make an upload without oneshot_fl: torch and safetensors are enough. Change what is between the lines.

python pack.py model.pt client.safetensors
"""

import json
import sys
from unicodedata import normalize

import torch
from safetensors.torch import save_file

# ---------------------------------------------------------------------------------------------------------------------
ARCHITECTURE = {"_target_": "torchvision.models.resnet18", "num_classes": 3}  # or {"name": "cnn2"}, one of conf/model
DATA = {"channels": 3, "size": 64, "mean": [0.5], "std": [0.5]}  # of pixels in [0, 1]; also max_value, background
CLASSES = ["benign", "malignant", "unclear"]  # in the order of the model's outputs
COUNTS = None  # [120, 30, 0], if the server may know
# ---------------------------------------------------------------------------------------------------------------------

names = [normalize("NFC", name.strip()) for name in CLASSES]  # as the server wants them spelt
told = {"format": 1, "kind": "classifier", "architectures": [ARCHITECTURE], "data": DATA, "class_names": names}
told |= {"label_counts": COUNTS} if COUNTS else {}
state = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
state = state.get("state_dict", state)  # of a checkpoint, the weights
whole = {name: each.float() if each.is_floating_point() else each for name, each in state.items()}
plain = {name: each.contiguous().clone() for name, each in whole.items()}
save_file(plain, sys.argv[2], {"oneshot_fl": json.dumps(told)})
