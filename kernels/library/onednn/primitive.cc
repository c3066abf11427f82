#include "kernels/library/onednn/primitive.h"

#include <algorithm>
#include <string_view>

#include "proto/base/check.h"

extern "C" void omp_set_num_threads(int count);  // from libgomp, which is installed without its header

namespace xpud::kernels::onednn {
namespace {

using dnnl::memory;

memory::desc Describe(const MatmulPrimitive::Spec& spec, int64_t rows, int64_t columns, ops::DType type,
                      const Strides& s) {
  if (spec.batch == 1) return memory::desc({rows, columns}, TypeOf(type), memory::dims{s.row, s.column});
  const int64_t batch = s.batch == 0 ? 1 : spec.batch;
  const int64_t step = s.batch == 0 ? std::max(rows * s.row, columns * s.column) : s.batch;
  return memory::desc({batch, rows, columns}, TypeOf(type), memory::dims{step, s.row, s.column});
}

memory::desc DescribeBias(const MatmulPrimitive::Spec& spec) {
  if (spec.batch == 1) return memory::desc({1, spec.n}, TypeOf(spec.out_type), memory::format_tag::ab);
  return memory::desc({1, 1, spec.n}, TypeOf(spec.out_type), memory::format_tag::abc);
}

dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

bool Has(dnnl::cpu_isa isa) {
  const unsigned have = static_cast<unsigned>(dnnl::get_effective_cpu_isa()),
                 want = static_cast<unsigned>(isa);
  return (have & want) == want;
}

}  // namespace

const dnnl::engine& CpuEngine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

const dnnl::stream& ThreadStream() {
  thread_local const dnnl::stream stream = [] {
    omp_set_num_threads(1);
    return dnnl::stream(CpuEngine());
  }();
  return stream;
}

memory::data_type TypeOf(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat16:
      return memory::data_type::f16;
    case ops::DType::kBFloat16:
      return memory::data_type::bf16;
    case ops::DType::kFloat64:
      return memory::data_type::f64;
    default:
      return memory::data_type::f32;
  }
}

bool MultipliesNatively(ops::DType type) {
  static const bool f16 = Has(dnnl::cpu_isa::avx512_core_fp16), bf16 = Has(dnnl::cpu_isa::avx512_core_bf16);
  switch (type) {
    case ops::DType::kFloat32:
      return true;
    case ops::DType::kBFloat16:
      return bf16;
    case ops::DType::kFloat16:
      return f16;
    default:
      return false;
  }
}

bool MultipliesTiles() {
  static const bool tiles = Has(dnnl::cpu_isa::avx512_core_amx);
  return tiles;
}

std::unique_ptr<MatmulPrimitive> MatmulPrimitive::Create(const Spec& spec) {
  ThreadStream();  // the primitive is built for the number of threads that this thread may use
  try {
    std::unique_ptr<MatmulPrimitive> made(new MatmulPrimitive);
    const bool packed = spec.b_tag != memory::format_tag::undef;
    const memory::desc a = Describe(spec, spec.m, spec.k, spec.in, spec.a);
    const memory::desc b = packed ? memory::desc({spec.k, spec.n}, TypeOf(spec.in), spec.b_tag)
                                  : Describe(spec, spec.k, spec.n, spec.in, spec.b);
    const memory::desc out = Describe(spec, spec.m, spec.n, spec.out_type, spec.out);
    const dnnl::primitive_attr attributes = Attributes();
    const dnnl::matmul::primitive_desc described =
        spec.row_bias ? dnnl::matmul::primitive_desc(CpuEngine(), a, b, DescribeBias(spec), out, attributes)
                      : dnnl::matmul::primitive_desc(CpuEngine(), a, b, out, attributes);
    const std::string_view implementation = described.impl_info_str();
    if (implementation.starts_with("ref")) return nullptr;
    made->primitive_ = dnnl::matmul(described);
    made->a_ = a;
    made->b_ = b;
    made->out_ = out;
    made->scratch_ = described.scratchpad_desc();
    made->scratch_bytes_ = made->scratch_.get_size();
    made->has_bias_ = spec.row_bias;
    if (spec.row_bias) made->bias_ = DescribeBias(spec);
    return made;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

void MatmulPrimitive::Run(const void* a, const void* b, const void* bias, void* out, void* scratch) const {
  const dnnl::engine& engine = CpuEngine();
  const memory ma(a_, engine, const_cast<void*>(a)), mb(b_, engine, const_cast<void*>(b)),
      mo(out_, engine, out);
  const memory ms(scratch_, engine, scratch);
  const memory mc = has_bias_ ? memory(bias_, engine, const_cast<void*>(bias)) : memory();
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, ma.get()},
                                       {DNNL_ARG_WEIGHTS, mb.get()},
                                       {DNNL_ARG_DST, mo.get()},
                                       {DNNL_ARG_SCRATCHPAD, ms.get()},
                                       {DNNL_ARG_BIAS, mc.get(true)}};
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), ThreadStream().get(), has_bias_ ? 5 : 4, arguments);
  XPUD_CHECK(status == dnnl_success);
}

}  // namespace xpud::kernels::onednn
