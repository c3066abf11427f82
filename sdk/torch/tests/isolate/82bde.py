
import os
os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/tmp/torchinductor_root'
os.environ.pop('TORCHDYNAMO_REPRO_AFTER', None)
os.environ.pop('TORCHDYNAMO_REPRO_LEVEL', None)

import torch
from torch import tensor, device
import torch.fx as fx
from torch._dynamo.testing import rand_strided
from math import inf
import torch._inductor.inductor_prims



import torch._dynamo.config
import torch._inductor.config
import torch._functorch.config
import torch.fx.experimental._config
torch._dynamo.config.debug_dir_root = '/tmp/mini'
import torch_xpud.inductor.orders
torch._inductor.config.cpp_wrapper = False
torch._inductor.config.fx_wrapper = False
torch._inductor.config.online_softmax = False
torch._inductor.config.size_asserts = True
torch._inductor.config.alignment_asserts = False
torch._inductor.config._post_fusion_custom_pass = torch_xpud.inductor.orders.restore_loops
torch._inductor.config.max_autotune = False
torch._inductor.config.max_autotune_pointwise = False
torch._inductor.config.max_autotune_gemm = False
torch._inductor.config.coordinate_descent_tuning = False
torch._inductor.config.layout_optimization = False
torch._inductor.config.split_reductions = False
torch._inductor.config.benchmark_kernel = False
torch._inductor.config.combo_kernels = False
torch._inductor.config.comprehensive_padding = True
torch._inductor.config.generate_intermediate_hooks = True
torch._inductor.config.disable_cpp_codegen = True
torch._inductor.config.triton.cudagraphs = False
torch._inductor.config.triton.store_cubin = False
torch._functorch.config.functionalize_rng_ops = False
torch._functorch.config.fake_tensor_allow_unsafe_data_ptr_access = True
torch._functorch.config.unlift_effect_tokens = True
torch._functorch.config.selective_decompose = False



isolate_fails_code_str = None





if "__compile_source__" in globals():
    import inspect as __after_aot_inspect
    import linecache as __after_aot_linecache
    __after_aot_filename = __after_aot_inspect.currentframe().f_code.co_filename
    __after_aot_linecache.cache[__after_aot_filename] = (
        len(__compile_source__),
        None,
        __compile_source__.splitlines(True),
        __after_aot_filename,
    )
# torch version: 2.13.0+cpu
# torch cuda version: None
# torch git version: cf30153c4c131c8164ee7798e5022d810682e2cb


# torch.cuda.is_available()==False, no GPU info collected
torch._higher_order_ops.triton_kernel_wrap.kernel_side_table.reset_table()

from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()



    def forward(self, arg0_1):
        mul = torch.ops.aten.mul.Tensor(arg0_1, 2);  arg0_1 = None
        exp2 = torch.ops.aten.exp2.default(mul);  mul = None
        sum_1 = torch.ops.aten.sum.dim_IntList(exp2, [-1]);  exp2 = None
        add = torch.ops.aten.add.Tensor(sum_1, 1);  sum_1 = None
        return (add,)

def load_args(reader):
    buf0 = reader.storage('85ee85a281ff3ada299c76e6de47527e42833efe', 48, device=device(type='xpud', index=0))
    reader.tensor(buf0, (3, 4), is_leaf=True)  # arg0_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy='', command='minifier-query', save_dir='/tmp/mini/run_2026_11_28_17_32_17_141123-pid_17883/minifier/checkpoints', tracing_mode='real', check_str=None)
        # To run it separately, do 
        # mod, args = run_repro(mod, load_args, accuracy='', command='get_args', save_dir='/tmp/mini/run_2026_11_28_17_32_17_141123-pid_17883/minifier/checkpoints', tracing_mode='real', check_str=None)
        # mod(*args)