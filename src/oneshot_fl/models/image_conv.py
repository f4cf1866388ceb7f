"""Convolutions whose one side is an image: few channels, for which a CPU has no fast kernel.

Both write, or read, the columns of the kernel as channels of their own, and add them up shifted to their places: the
same sums in another order.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.models.precision import at_least_float32


class ImageConv2d(nn.Conv2d):
    """A convolution of stride 1 over images; on a CPU its gradient to them is cheaper while its weights are frozen.

    On one core, way there and back together, 128 images take half (bf16) to two fifths of the time for cnn2 at 1x28x28
    and three fifths for cnn3 at 3x32x32; a generator step against five clients is 1.05 to 1.08 times faster. There is
    next to nothing in it for few outputs of colour images (6 at 5x5). Not measured on an accelerator, where it is an
    `nn.Conv2d`.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, padding: int = 0) -> None:
        super().__init__(inputs, outputs, kernel, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """Images `[b, inputs, H, W]` -> `[b, outputs, H', W']`, the same numbers as of an `nn.Conv2d`."""
        frozen = not any(parameter.requires_grad for parameter in self.parameters())
        if frozen and x.requires_grad and x.device.type == "cpu":
            return _ConvolvedImages.apply(x, self.weight, self.bias, self.padding)
        return super().forward(x)


class ConvToImage2d(nn.Conv2d):
    """A convolution of stride 1 that makes images; on a CPU cheaper than an `nn.Conv2d`, elsewhere that.

    On one core, way there and back together, a generator's last layer takes half (28x28 grey) to three quarters of the
    time (3x32x32) for 128 images.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, padding: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """`[b, inputs, H, W]` -> images `[b, outputs, H', W']`, added up in single precision."""
        if x.device.type != "cpu":
            return super().forward(x)
        outputs, inputs, rows, columns = self.weight.shape
        top, left = cast(tuple[int, int], self.padding)
        upright = self.weight.permute(3, 0, 1, 2).reshape(columns * outputs, inputs, rows, 1)
        sent = F.conv2d(x, upright, padding=(top, 0))
        total = _added(sent, columns, lambda j: (left - j, left - columns + 1 + j))
        return (total + cast(Tensor, self.bias).view(-1, 1, 1)).to(sent.dtype)


class _ConvolvedImages(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, tuple[int, int]], output: Tensor) -> None:
        x, weight, _, ctx.padding = inputs
        ctx.dtype = x.dtype
        ctx.save_for_backward(weight)

    @staticmethod
    def backward(ctx: Any, of_output: Tensor) -> tuple[Tensor, None, None, None]:
        """What each column of the kernel sends back, `[b, columns * inputs, H, W']`, and the sum of that.

        It is added in single precision: in bf16 the gradient would be 1.6 times as wrong as a plain convolution's, so
        it is 1.0 times, to bf16 images 1.25 times.
        """
        (weight,) = ctx.saved_tensors
        columns = weight.shape[3]
        top, left = ctx.padding
        # contiguous: of stacked clients this becomes a grouped convolution, which torch's kernel (2.14.1) gets wrong
        # where the weights and what comes back both lie channels last
        upright = weight.to(of_output.dtype).permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(3).contiguous()
        sent = F.conv_transpose2d(of_output, upright, padding=(top, 0))
        return _added(sent, columns, lambda j: (j - left, columns - 1 - j - left)).to(ctx.dtype), None, None, None


def _added(sent: Tensor, columns: int, margins: Callable[[int], tuple[int, int]]) -> Tensor:
    """What each column of the kernel sends, `[b, columns * channels, H, W]`, summed with its `margins` left and right.

    In single precision at least; a negative margin cuts off.
    """
    placed = [F.pad(part, margins(j)) for j, part in enumerate(at_least_float32(sent).chunk(columns, dim=1))]
    return sum(placed[1:], start=placed[0])
