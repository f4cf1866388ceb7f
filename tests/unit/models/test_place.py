import torch
from torch import nn

from oneshot_fl.models.place import place_of


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.zeros(3, device="meta"))


def test_a_model_is_where_its_parameters_or_else_its_buffers_are():
    assert place_of(nn.Linear(1, 1, device="meta")).type == "meta"
    assert place_of(Buffered()).type == "meta"
    assert place_of(nn.Identity()).type == "cpu"
