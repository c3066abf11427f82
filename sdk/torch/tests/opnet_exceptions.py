"""The allowed differences between xpud and the CPU, with reasons. The suite fails if a listed difference no longer occurs."""

# Operators whose values are random. Types, shapes and strides are compared, and numbers must be finite.
RANDOM = {
    "bernoulli": "random", "cauchy": "random", "exponential": "random", "geometric": "random", "log_normal": "random",
    "multinomial": "random", "nn.functional.alpha_dropout": "random", "nn.functional.dropout": "random",
    "nn.functional.dropout2d": "random", "nn.functional.dropout3d": "random", "nn.functional.feature_alpha_dropout": "random",
    "nn.functional.fractional_max_pool2d": "chooses its windows at random", "nn.functional.fractional_max_pool3d": "chooses its windows at random",
    "normal": "random", "rand_like": "random", "randint": "random", "randint_like": "random", "randn": "random", "randn_like": "random",
    "svd_lowrank": "starts with a random matrix", "pca_lowrank": "starts with a random matrix", "uniform": "random",
}  # fmt: skip

# Operators whose results are uninitialised.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}

# Arguments that make an operator random.
RANDOM_ARGUMENTS = {
    "nn.functional.rrelu": lambda kwargs: kwargs.get("training"),
    "nn.functional.scaled_dot_product_attention": lambda kwargs: kwargs.get("dropout_p", 0) > 0,
    "nn.functional.multi_head_attention_forward": lambda kwargs: kwargs.get("training", True),
}


def is_random(op, tree):
    chosen = RANDOM_ARGUMENTS.get(op.name)
    return op.name in RANDOM or bool(chosen and chosen(tree[2]))


# Modules whose values in training cannot be compared.
RANDOM_MODULES = {
    "nn.RReLU": "random in training", "nn.FractionalMaxPool2d": "chooses its windows at random",
    "nn.FractionalMaxPool3d": "chooses its windows at random",
}  # fmt: skip

# (entry, type or None for all, "aspect/kind", "aspect" or "" for all): reason. Crashes cannot be listed.
EXCEPTIONS = {}
# Of these, those that occur on some processors only.
SOMETIMES = set()


def listed(names, what, reason, dtype=None, sometimes=False):
    for name in names.split():
        EXCEPTIONS[name, dtype, what] = reason
        if sometimes:
            SOMETIMES.add((name, dtype, what))


SPARSE = "sparse tensors of compressed layouts are refused with a NotImplementedError that says so"
listed("sparse.mm.reduce sparse.sampled_addmm", "", SPARSE)
FLOAT32_MOMENTS = "mean and deviation are float32, as on CUDA; the CPU rounds them to 16 bits"
for kind in ("float16", "bfloat16"):
    for aspect in ("values", "layouts"):
        listed("native_layer_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update", f"{aspect}/dtype", FLOAT32_MOMENTS, kind)
    listed("native_batch_norm _native_batch_norm_legit", "out/refused", FLOAT32_MOMENTS, kind)
listed("native_batch_norm _native_batch_norm_legit normal.number_mean", "out/accepted", "an out= of another shape is resized, as for other operators; the CPU's kernel refuses it")
for what in ("strides", "operand strides"):
    listed("nn.functional.conv3d nn.functional.conv_transpose3d nn.Conv3d nn.ConvTranspose3d nn.LazyConv3d nn.LazyConvTranspose3d", f"layouts/{what}", "channels-last if the input is, as on CUDA; some of the CPU's kernels are not", sometimes=True)
listed("native_group_norm", "layouts/accepted", "the CPU wants a contiguous operand; here, as on CUDA, none is needed")
listed("native_group_norm", "strided gradients/accepted", "the CPU wants a contiguous operand; here, as on CUDA, none is needed", "float32")
listed("native_group_norm", "layouts/values", "PyTorch's CPU kernel reads an expanded operand as if it were contiguous")
listed("nn.CTCLoss", "layouts/values", "PyTorch's CPU kernel reads beyond concatenated targets that are strided", "float32", sometimes=True)
listed("nn.NLLLoss", "layouts/accepted", "the gradient of a channels-last operand is refused on the CPU", sometimes=True)
listed("masked.median", "layouts/values", "PyTorch's CPU kernel reads an expanded operand as if it were contiguous")
listed("nn.functional.max_pool1d", "bits/values", "PyTorch's CPU kernel does not see the negative bit", "float32")
listed("nn.functional.gelu", "out/values", "PyTorch's CPU kernel does not write to a strided out=", "float32")
listed("nn.functional.gelu", "out/operand values", "PyTorch's CPU kernel does not write to a strided out=", "float32")
listed("narrow_copy nn.functional.avg_pool3d", "out/memory values", "PyTorch's CPU kernel writes between the elements of a strided out=")
for what in ("values", "operand values"):
    listed("nn.functional.avg_pool3d", f"out/{what}", "PyTorch's CPU kernel writes between the elements of a strided out=")
for aspect in ("strides", "operand strides"):
    listed("nn.functional.linear", f"out/{aspect}", "the CPU gives a strided out= of a vector other strides; here it keeps its own")
CONJUGATED = "falls back, and copying the result back does the conjugation that is pending on the CPU"
for what in ("values/bits", "layouts/bits", "bits/bits", "out/bits", "overlap/bits", "out/operand bits", "overlap/operand bits"):
    listed("linalg.lu_solve", what, CONJUGATED, "complex64")
listed("narrow_copy", "errors/exception", "IndexError for a dimension out of range, as on CUDA; the CPU has RuntimeError", "float32")
listed("baddbmm nn.functional.linear", "scalars/exception", "0-dim operands, which both refuse, with another class of exception")
FLIP = "one sample has a ReLU operand of 0.0004 in float32, which is -0.0008 here and 0.001 on the CPU: both are as near, and one gradient is cut off"
listed("nn.TransformerEncoder", "evaluation/values", FLIP, "bfloat16")

BESSEL = "PyTorch's CPU kernel has seven digits for arguments of about 5; ours agrees with mpmath to 15"
for what in ("values/values", "layouts/values", "out/values", "out/operand values"):
    listed("special.bessel_j0 special.bessel_y1", what, BESSEL, "float64")
POLES = "infinite at a negative integer; PyTorch's CPU kernel divides by the sine of a rounded multiple of pi"
for kind in ("int16", "int8"):
    for what in ("values/values", "method/values", "layouts/values", "scalars/values", "out/values", "out/operand values"):
        listed(" ".join(f"polygamma.polygamma_n_{n}" for n in range(5)), what, POLES, kind)

listed("logdet", "layouts/values", "the logarithm of a determinant of 0 has no angle: nan on the CPU, 0 here", "complex64", sometimes=True)
listed("nn.functional.normalize", "layouts/strides", "the stride of a dimension of one element", "complex64")
listed("_unsafe_masked_index_put_accumulate", "devices/values", "adds elements of equal indices in another order, and each addition is rounded", "bfloat16", sometimes=True)
listed("gather", "errors/accepted", "out= overlaps the index only once it is resized; the result is computed before", "float32")
listed("lu", "out/accepted", "copies its results to out= on any device, and PyTorch's CPU checks for the CPU alone")
listed("mean logsumexp cumsum cumprod", "out/refused", "a complex result is not stored into a real out=, which would drop its imaginary part", "complex64")
listed("nn.functional.pixel_shuffle nn.functional.pixel_unshuffle", "layouts/strides", "contiguous for channels-last operands, as on CUDA")

TIES = "of equal elements, the first one is chosen; the CPU's choice depends on its algorithm (nth_element, an unstable sort)"
for kind in ("int64", "int32", "int16", "int8", "uint8"):
    for what in ("values/values", "method/values", "layouts/values", "out/values", "out/operand values"):
        listed("kthvalue topk", what, TIES, kind)
for kind in ("bfloat16", "float16", "bool"):
    for what in ("values/values", "method/values", "layouts/values"):
        listed("argsort", what, TIES, kind)
for kind in ("bfloat16", "float16", "bool", "int8", "uint8"):
    for what in ("values/values", "method/values", "layouts/values", "out/values", "out/operand values"):
        listed("sort", what, TIES, kind)
for what in ("values/values", "gradients/values", "method/values", "layouts/values", "out/values", "out/operand values"):
    listed("topk", what, TIES, "bfloat16")
for kind in ("bfloat16", "bool", "float16", "int64", "int32", "int16", "int8", "uint8"):
    listed("mode", "values/values", TIES, kind)
for kind in ("bfloat16", "float16"):
    listed("mode", "gradients/values", TIES, kind)

# (operator, aspect): (reason, a program that shows it). These aspects do not run.
CPU_CRASHES = {
    ("_chunk_cat", "scalars"): ("PyTorch's CPU kernel crashes on 0-dim operands", "torch._chunk_cat([torch.tensor(1.0)], 0, 2)"),
}

# torch.compile
listed("max_pool2d_with_indices_backward", "compiled dynamic/refused", "Dynamo makes its arguments symbolic, which its schema refuses, on all devices", "float32")
listed("max_pool2d_with_indices_backward", "compiled dynamic/refused", "Dynamo makes its arguments symbolic, which its schema refuses, on all devices", "bfloat16")
