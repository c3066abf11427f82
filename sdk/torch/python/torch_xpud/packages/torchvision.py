"""torchvision's operators `nms` and `roi_align` on xpud, composed of PyTorch's operators.

torchvision's wheel from PyPI is linked with CUDA's libraries. Beside a torch without CUDA its operators cannot be loaded, and `import torchvision`
fails with "operator torchvision::nms does not exist", as does everything that imports it: timm, lightning, most of transformers. There this module
declares the operators, so that the package works; `nms` and `roi_align` then run on every device. Where torchvision has loaded its own
operators, it only adds kernels for xpud.
"""

import torch

DECLARATIONS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, SymInt batch_size, "
    "SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
    "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "_cuda_version() -> int",
)

_libraries = []  # registrations last as long as these objects


# ---- non-maximum suppression

_BLOCK = 1024  # boxes that are compared with all later ones at a time; limits memory to _BLOCK x N elements


def _overlaps(a, b, threshold):
    """Returns which boxes of `a` [M, 4] and `b` [N, 4] have an intersection over union above `threshold`: bool [M, N]."""
    lower = torch.maximum(a[:, None, :2], b[None, :, :2])
    upper = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = (upper - lower).clamp_min(0)
    intersection = sides[..., 0] * sides[..., 1]
    area_a, area_b = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return intersection / (area_a[:, None] + area_b[None, :] - intersection) > threshold


def _keep_in_block(overlap, alive):
    """Returns which boxes of a block, in descending order of score, greedy suppression keeps.

    A box is kept if it is alive and no kept box before it overlaps it. The kept set is the only fixed point of this rule, and repeating the rule
    reaches it: after n rounds the first n boxes are final. The number of rounds is the length of the longest chain of suppressions.
    """
    before = overlap.triu(1).to(torch.float32)
    keep = alive
    while True:
        suppressed = (keep.to(torch.float32) @ before) > 0
        following = alive & ~suppressed
        if torch.equal(following, keep):
            return keep
        keep = following


def nms(dets, scores, iou_threshold):
    """Returns the indices of the boxes that greedy suppression keeps: int64, in descending order of score.

    dets: [N, 4] as x1, y1, x2, y2; scores: [N]. A box is dropped if its intersection over union with a kept box of a higher score is above
    `iou_threshold`. Raises RuntimeError for other shapes. Waits for each block of boxes.
    """
    if dets.dim() != 2 or dets.size(1) != 4:
        raise RuntimeError(f"boxes should be a tensor of shape [N, 4], got {list(dets.shape)}")
    if scores.dim() != 1 or scores.size(0) != dets.size(0):
        raise RuntimeError(f"scores should be a tensor of shape [{dets.size(0)}], got {list(scores.shape)}")
    if dets.dtype != scores.dtype:
        raise RuntimeError(f"dets should have the same type as scores, got {dets.dtype} and {scores.dtype}")
    count = dets.size(0)
    order = torch.argsort(scores, descending=True, stable=True)
    boxes = dets[order]
    if boxes.dtype in (torch.float16, torch.bfloat16):
        boxes = boxes.float()
    alive = torch.ones(count, dtype=torch.bool, device=dets.device)
    for begin in range(0, count, _BLOCK):
        end = min(begin + _BLOCK, count)
        overlap = _overlaps(boxes[begin:end], boxes[begin:], iou_threshold)
        kept = _keep_in_block(overlap[:, : end - begin], alive[begin:end])
        later = alive[end:] & ~(overlap[:, end - begin :] & kept[:, None]).any(0)
        alive = torch.cat((alive[:begin], kept, later))
    return order[alive]


# ---- region of interest, aligned

_SAMPLES = 1 << 26  # elements that are sampled at a time


def _axis(start, length, bins, grid, extent):
    """Returns where one axis is sampled, as (positions, whether they count): both [K, bins * max(grid)].

    start, length, grid: [K], the region's start, its length, and the samples of each bin. A position more than one pixel outside of the `extent`
    pixels does not count; others are moved inside.
    """
    widest = grid if isinstance(grid, int) else max(int(grid.max()), 1)
    size = length / bins  # of a bin
    bin_index = torch.arange(bins, device=start.device, dtype=start.dtype)
    sample = torch.arange(widest, device=start.device, dtype=start.dtype)
    count = torch.full_like(start, grid) if isinstance(grid, int) else grid
    position = (start[:, None, None] + bin_index[None, :, None] * size[:, None, None]
                + (sample + 0.5)[None, None, :] * (size / count.clamp_min(1))[:, None, None])
    valid = (position >= -1) & (position <= extent) & (sample[None, None, :] < count[:, None, None])
    return position.clamp(0, extent - 1).flatten(1), valid.flatten(1)


def _samples(rois, spatial_scale, bins, sampling_ratio, aligned, batch, sizes):
    """Yields (slice of rois, grid, weights, samples of a bin) for as many regions as fit at a time.

    The images of the batch are stacked vertically, so that one grid addresses them all: grid is [1, K * rows, columns, 2] for grid_sampler_2d
    with align_corners, weights are [K, rows, columns].
    """
    rois = rois if rois.dtype == torch.float64 else rois.float()
    offset = 0.5 if aligned else 0.0
    start_x, start_y, end_x, end_y = (rois[:, i] * spatial_scale - offset for i in range(1, 5))
    lengths = [end_y - start_y, end_x - start_x]
    if not aligned:
        lengths = [length.clamp_min(1) for length in lengths]
    if sampling_ratio > 0:
        grids = [sampling_ratio, sampling_ratio]
        widest = sampling_ratio**2
    else:
        grids = [torch.ceil(length / n) for length, n in zip(lengths, bins)]
        widest = int((grids[0].max() * grids[1].max()).item()) if len(rois) else 1
    height, width = sizes
    step = max(1, _SAMPLES // max(1, bins[0] * bins[1] * widest))
    for begin in range(0, len(rois), step):
        part = slice(begin, min(begin + step, len(rois)))
        own = [grid if isinstance(grid, int) else grid[part] for grid in grids]
        y, valid_y = _axis(start_y[part], lengths[0][part], bins[0], own[0], height)
        x, valid_x = _axis(start_x[part], lengths[1][part], bins[1], own[1], width)
        y = y + rois[part, 0].long().to(y.dtype)[:, None] * height
        y = y * (2 / max(batch * height - 1, 1)) - 1
        x = x * (2 / max(width - 1, 1)) - 1
        rows, columns = y.size(1), x.size(1)
        grid = torch.stack((x[:, None, :].expand(-1, rows, -1), y[:, :, None].expand(-1, -1, columns)), -1)
        counts = own[0] * own[1] if sampling_ratio > 0 else (own[0] * own[1]).clamp_min(1)
        weights = (valid_y[:, :, None] & valid_x[:, None, :]).to(y.dtype)
        weights = weights / (counts if isinstance(counts, int) else counts[:, None, None])
        yield part, grid.reshape(1, -1, columns, 2), weights, (rows // bins[0], columns // bins[1])


def _check_rois(rois, other, name):
    if rois.dim() != 2 or rois.size(1) != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if rois.dtype != other.dtype:
        raise RuntimeError(f"Expected tensor for {name} to have the same type as tensor for rois; but type {other.dtype} does not equal {rois.dtype}")


def _wide(tensor):
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Returns the mean of bilinear samples in each bin of each region: [K, C, pooled_height, pooled_width], of input's dtype.

    input: [N, C, H, W]; rois: [K, 5] as index of the image, x1, y1, x2, y2. `sampling_ratio` <= 0 takes as many samples as a bin has pixels, which
    waits for the largest region.
    """
    _check_rois(rois, input, "input")
    batch, channels, height, width = input.shape
    stacked = _wide(input).transpose(0, 1).reshape(1, channels, batch * height, width)
    results = []
    for part, grid, weights, (per_row, per_column) in _samples(rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned, batch, (height, width)):
        values = torch.ops.aten.grid_sampler_2d(stacked, grid.to(stacked.dtype), 0, 1, True)  # bilinear, border, align_corners
        values = values.view(channels, -1, pooled_height, per_row, pooled_width, per_column)
        weights = weights.to(values.dtype).view(-1, pooled_height, per_row, pooled_width, per_column)
        results.append((values * weights).sum((3, 5)).transpose(0, 1))
    if not results:
        return input.new_empty((0, channels, pooled_height, pooled_width))
    return torch.cat(results).to(input.dtype).contiguous()


def _roi_align_backward(grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width, sampling_ratio, aligned):
    """Returns the gradient by roi_align's input: [batch_size, channels, height, width]."""
    _check_rois(rois, grad, "grad")
    wide = _wide(grad)
    stacked = wide.new_zeros((1, channels, batch_size * height, width))
    total = stacked
    for part, grid, weights, (per_row, per_column) in _samples(rois, spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned, batch_size,
                                                               (height, width)):
        weights = weights.to(wide.dtype).view(-1, pooled_height, per_row, pooled_width, per_column)
        values = wide[part].transpose(0, 1)[:, :, :, None, :, None] * weights
        values = values.reshape(1, channels, -1, pooled_width * per_column)
        total = total + torch.ops.aten.grid_sampler_2d_backward(values, stacked, grid.to(wide.dtype), 0, 1, True, [True, False])[0]
    return total.view(channels, batch_size, height, width).transpose(0, 1).to(grad.dtype).contiguous()


# ---- registration


def _without_autocast(operator):
    """Returns the operator's kernel for autocast on xpud: in float32, as torchvision does on its own devices."""

    def run(first, second, *arguments):
        with torch.autocast("xpud", enabled=False):
            result = operator(_wide(first), _wide(second), *arguments)
        return result.to(first.dtype) if result.is_floating_point() else result

    return run


def _register(key):
    kernels = torch.library.Library("torchvision", "IMPL")
    for kernel in (nms, roi_align, _roi_align_backward):
        kernels.impl(kernel.__name__, kernel, key)
    for name in ("nms", "roi_align"):
        kernels.impl(name, _without_autocast(getattr(torch.ops.torchvision, name)), "AutocastPrivateUse1")
    _libraries.append(kernels)


def _has_ops() -> bool:  # torch.jit.script compiles it, as part of each function that calls it
    return True


def extension(module):
    """Called when torchvision.extension was imported, which loads torchvision's operators."""
    if module._has_ops():
        _register("PrivateUse1")
        return
    declarations = torch.library.Library("torchvision", "DEF")
    for declaration in DECLARATIONS:
        declarations.define(declaration)
    declarations.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    _libraries.append(declarations)
    _register("CompositeExplicitAutograd")
    module._has_ops = _has_ops
