#include "kernels/library/onednn/convolution_plan.h"

#include <algorithm>
#include <string_view>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/plan_table.h"
#include "kernels/library/thread_memory.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::onednn {
namespace {

using dnnl::memory;

constexpr size_t kMaxPlans = 4096;
constexpr double kPartNanoseconds = 60e3;  // a part is not cut below this
constexpr int64_t kMaxRowParts = 16;       // of all images
constexpr int64_t kMaxSums = 8;            // parts of the gradient by the weight

size_t At(int64_t i) { return static_cast<size_t>(i); }
int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Product(const ConvolutionProblem::List& list, int64_t count) {
  int64_t product = 1;
  for (int64_t d = 0; d < count; ++d) product *= list[At(d)];
  return product;
}

// A rate of one core. It determines only the size of parts.
double Estimate(const ConvolutionProblem& p) {
  const int64_t outputs = p.batch * p.output_channels * Product(p.output, p.spatial);
  const int64_t channels = p.input_channels / p.groups;
  const double operations =
      2.0 * static_cast<double>(outputs) * static_cast<double>(channels * Product(p.kernel, p.spatial));
  return operations / (p.type == ops::DType::kFloat32 ? 100 : 300);
}

memory::format_tag ChannelsLast(int64_t spatial) {
  return spatial == 2 ? memory::format_tag::nhwc : memory::format_tag::ndhwc;
}

memory::dims Dims(const ConvolutionProblem::List& list, int64_t spatial, int64_t first) {
  memory::dims dims(list.begin(), list.begin() + spatial);
  dims[0] = first;
  return dims;
}

}  // namespace

std::shared_ptr<const ConvolutionPlan> ConvolutionPlan::Of(const ConvolutionProblem& problem) {
  static auto& plans = *new PlanTable<ConvolutionProblem, const ConvolutionPlan>(kMaxPlans);
  return plans.Find(problem, [&] { return std::make_shared<const ConvolutionPlan>(problem); });
}

ConvolutionPlan::ConvolutionPlan(const ConvolutionProblem& problem)
    : problem_(problem), nanoseconds_(Estimate(problem)) {
  ThreadStream();  // primitives are built for the number of threads that this thread may use
  switch (problem.direction) {
    case ops::Family::kConvolutionWeight:
      CutImages();
      break;
    case ops::Family::kConvolutionInput:
      usable_ = CutRows(1);
      break;
    default:
      usable_ = CutRows(RowTiles()) || CutRows(1);
  }
  parts_ = static_cast<int64_t>(placed_.size());
  if (problem.direction != ops::Family::kConvolutionWeight) parts_ *= problem.batch;
}

// ---- parts

int64_t ConvolutionPlan::RowTiles() const {
  const double image = nanoseconds_ / static_cast<double>(problem_.batch);
  const int64_t wanted = std::min(CeilDivide(kMaxRowParts, problem_.batch), problem_.output[0]);
  return std::clamp<int64_t>(static_cast<int64_t>(image / kPartNanoseconds), 1, std::max<int64_t>(wanted, 1));
}

ConvolutionPlan::Part ConvolutionPlan::RowsOf(int64_t first, int64_t rows) const {
  const ConvolutionProblem& p = problem_;
  const int64_t begin = first * p.stride[0] - p.padding[0];
  const int64_t end = begin + (rows - 1) * p.stride[0] + p.dilation[0] * (p.kernel[0] - 1) + 1;
  Part part;
  part.first_row = first;
  part.rows = rows;
  part.first_input_row = std::max<int64_t>(begin, 0);
  part.input_rows = std::min(end, p.input[0]) - part.first_input_row;
  part.before = std::max<int64_t>(-begin, 0);
  return part;
}

// Cuts each image's output into `tiles` of rows. A gradient by the input covers all input rows. Returns false
// if oneDNN refuses.
bool ConvolutionPlan::CutRows(int64_t tiles) {
  placed_.clear();
  primitives_.clear();
  weight_ = {};
  const int64_t rows = CeilDivide(problem_.output[0], tiles);
  for (int64_t first = 0; first < problem_.output[0]; first += rows) {
    Part part = RowsOf(first, std::min(rows, problem_.output[0] - first));
    if (problem_.direction == ops::Family::kConvolutionInput) part.input_rows = problem_.input[0];
    if (part.input_rows < 1 || !AddPart(part, 0)) return false;
  }
  return !placed_.empty();
}

void ConvolutionPlan::CutImages() {
  const int64_t wanted = static_cast<int64_t>(nanoseconds_ / (8 * kPartNanoseconds));
  const int64_t sums = std::clamp<int64_t>(wanted, 1, std::min(kMaxSums, problem_.batch));
  Part part = RowsOf(0, problem_.output[0]);
  part.input_rows = problem_.input[0];
  part.images = CeilDivide(problem_.batch, sums);
  usable_ = true;
  for (int64_t image = 0; usable_ && image < problem_.batch; image += part.images) {
    part.images = std::min(part.images, problem_.batch - image);
    usable_ = AddPart(part, image);
  }
}

// Creates the part's primitive, unless there is one of its shape.
bool ConvolutionPlan::AddPart(const Part& part, int64_t image) {
  Part shape = part;
  shape.first_row = shape.first_input_row = 0;
  const auto same = std::ranges::find(primitives_, shape, [](const auto& made) { return made->shape; });
  const Primitive* primitive = same == primitives_.end() ? nullptr : same->get();
  if (primitive == nullptr) {
    auto made = std::make_unique<Primitive>();
    made->shape = shape;
    if (!Create(shape, *made)) return false;
    primitive = primitives_.emplace_back(std::move(made)).get();
  }
  placed_.push_back({part, image, primitive});
  return true;
}

// ---- primitives

memory::dims ConvolutionPlan::WeightSizes() const {
  const ConvolutionProblem& p = problem_;
  memory::dims sizes = {p.output_channels / p.groups, p.input_channels / p.groups};
  sizes.insert(sizes.end(), p.kernel.begin(), p.kernel.begin() + p.spatial);
  if (p.groups > 1) sizes.insert(sizes.begin(), p.groups);
  return sizes;
}

// The weight's layout is oneDNN's choice, once for all parts.
ConvolutionPlan::Descs ConvolutionPlan::DescribeTensors(const Part& shape) const {
  const ConvolutionProblem& p = problem_;
  const auto tensor = [&](int64_t channels, const ConvolutionProblem::List& list, int64_t rows) {
    memory::dims dims = Dims(list, p.spatial, rows);
    dims.insert(dims.begin(), {shape.images, channels});
    return memory::desc(dims, TypeOf(p.type), ChannelsLast(p.spatial));
  };
  const bool sums = p.direction == ops::Family::kConvolutionWeight;
  const memory::data_type type = sums ? memory::data_type::f32 : TypeOf(p.type);
  return {tensor(p.input_channels, p.input, shape.input_rows),
          !weight_.is_zero() ? weight_ : memory::desc(WeightSizes(), type, memory::format_tag::any),
          tensor(p.output_channels, p.output, shape.rows)};
}

bool ConvolutionPlan::Create(const Part& shape, Primitive& made) {
  const ConvolutionProblem& p = problem_;
  const memory::dims stride = Dims(p.stride, p.spatial, p.stride[0]);
  memory::dims dilation = Dims(p.dilation, p.spatial, p.dilation[0]);
  for (int64_t& each : dilation) --each;
  const memory::dims before = Dims(p.padding, p.spatial, shape.before);
  memory::dims after = before;
  for (int64_t d = 0; d < p.spatial;
       ++d) {  // as much as the last position needs, which may be less than the padding
    const int64_t rows = d == 0 ? shape.rows : p.output[At(d)],
                  input = d == 0 ? shape.input_rows : p.input[At(d)];
    const int64_t read = (rows - 1) * p.stride[At(d)] + p.dilation[At(d)] * (p.kernel[At(d)] - 1) + 1;
    after[At(d)] = std::max<int64_t>(read - input - before[At(d)], 0);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Descs wanted = DescribeTensors(shape);
  const auto& [input, weight, output] = wanted;
  const memory::desc bias =
      p.bias ? memory::desc({p.output_channels}, TypeOf(p.type), memory::format_tag::x) : memory::desc();
  const auto keep = [&](const auto& described, auto primitive, const memory::desc& chosen) {
    if (std::string_view(described.impl_info_str()).starts_with("ref")) return false;
    weight_ = chosen;
    made.descs = {input, chosen, output};
    made.scratch = described.scratchpad_desc();
    made.primitive = std::move(primitive);
    return true;
  };
  try {
    const auto algorithm = dnnl::algorithm::convolution_direct;
    using Forward = dnnl::convolution_forward;
    const auto forward = [&](dnnl::prop_kind kind) {
      return Forward::primitive_desc(CpuEngine(), kind, algorithm, input, weight, bias, output, stride,
                                     dilation, before, after, attributes);
    };
    switch (p.direction) {
      case ops::Family::kConvolutionInput: {
        const auto hint = forward(dnnl::prop_kind::forward_training);
        const dnnl::convolution_backward_data::primitive_desc d(
            CpuEngine(), algorithm, input, weight, output, stride, dilation, before, after, hint, attributes);
        return keep(d, dnnl::convolution_backward_data(d), d.weights_desc());
      }
      case ops::Family::kConvolutionWeight: {
        const auto hint = forward(dnnl::prop_kind::forward_training);
        const dnnl::convolution_backward_weights::primitive_desc d(
            CpuEngine(), algorithm, input, weight, output, stride, dilation, before, after, hint, attributes);
        return keep(d, dnnl::convolution_backward_weights(d), d.diff_weights_desc());
      }
      default: {
        const auto d = forward(dnnl::prop_kind::forward_inference);
        return keep(d, Forward(d), d.weights_desc());
      }
    }
  } catch (const dnnl::error&) {
    return false;
  }
}

// ---- running

void ConvolutionPlan::RunPart(int64_t index, const ConvolutionOperands& operands, void* scratch) const {
  const ConvolutionProblem& p = problem_;
  const bool sums = p.direction == ops::Family::kConvolutionWeight;
  const auto per_image = static_cast<int64_t>(placed_.size());
  const Placed& placed = placed_[At(sums ? index : index % per_image)];
  const int64_t image = sums ? placed.image : index / per_image;
  const auto row = [&](const ConvolutionProblem::List& list, int64_t channels) {
    return Product(list, p.spatial) / list[0] * channels * static_cast<int64_t>(ops::SizeOf(p.type));
  };
  const int64_t input_row = row(p.input, p.input_channels), output_row = row(p.output, p.output_channels);
  auto* const input = operands.input + (image * p.input[0] + placed.part.first_input_row) * input_row;
  auto* const output = operands.output + (image * p.output[0] + placed.part.first_row) * output_row;
  auto* const weight = operands.weight + (sums ? index * static_cast<int64_t>(weight_bytes()) : 0);

  const Primitive& primitive = *placed.primitive;
  const size_t bytes = primitive.scratch.get_size();
  void* const space = bytes <= XPUD_HOST_SCRATCH_BYTES ? scratch : ThreadMemory(bytes);
  const auto of = [&](const memory::desc& desc, std::byte* data) { return memory(desc, CpuEngine(), data); };
  const memory in = of(primitive.descs[0], input), w = of(primitive.descs[1], weight),
               out = of(primitive.descs[2], output), space_memory(primitive.scratch, CpuEngine(), space);
  const bool backward = p.direction == ops::Family::kConvolutionInput;
  std::vector<dnnl_exec_arg_t> arguments = {{backward ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, in.get()},
                                            {sums ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w.get()},
                                            {backward || sums ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, out.get()},
                                            {DNNL_ARG_SCRATCHPAD, space_memory.get()}};
  const memory bias =
      p.bias ? of(memory::desc({p.output_channels}, TypeOf(p.type), memory::format_tag::x), operands.bias)
             : memory();
  if (p.bias) arguments.push_back({DNNL_ARG_BIAS, bias.get()});
  const dnnl_status_t status = dnnl_primitive_execute(primitive.primitive.get(), ThreadStream().get(),
                                                      static_cast<int>(arguments.size()), arguments.data());
  XPUD_CHECK(status == dnnl_success);
}

void ConvolutionPlan::SumParts(std::byte* weights, int64_t first, int64_t last) const {
  auto* const sum = reinterpret_cast<float*>(weights);
  for (int64_t part = 1; part < parts_; ++part) {
    const float* const other =
        reinterpret_cast<const float*>(weights + part * static_cast<int64_t>(weight_bytes()));
    for (int64_t i = first; i < last; ++i) sum[i] += other[i];
  }
}

void ConvolutionPlan::Reorder(const WeightView& view, std::byte* packed, bool packs) const {
  const ConvolutionProblem& p = problem_;
  memory::dims strides(view.strides.begin(), view.strides.begin() + p.spatial + 2);
  if (p.groups > 1) strides.insert(strides.begin(), view.strides[0] * (p.output_channels / p.groups));
  const memory::desc plain(WeightSizes(), TypeOf(view.type), strides);
  memory theirs(plain, CpuEngine(), view.data), ours(weight_, CpuEngine(), packed);
  memory &from = packs ? theirs : ours, &to = packs ? ours : theirs;
  dnnl::reorder(from, to).execute(ThreadStream(), from, to);
}

}  // namespace xpud::kernels::onednn
