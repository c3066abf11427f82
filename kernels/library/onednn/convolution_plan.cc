#include "kernels/library/onednn/convolution_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/plan_table.h"
#include "kernels/library/thread_memory.h"
#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::onednn {
namespace {

using dnnl::memory;
using ops::Family;

constexpr size_t kMaxPlans = 4096;
constexpr size_t kAlignment = 64;   // of what lies in scratch
constexpr int64_t kMinPlane = 196;  // positions
// Nanoseconds of work per byte from which the gradient by the weight is faster in oneDNN's blocked layout,
// conversion included.
constexpr double kWorthConverting = 0.4;

size_t At(int64_t i) { return static_cast<size_t>(i); }
int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

memory::dims Dims(const ConvolutionProblem::List& list, int64_t spatial, int64_t first) {
  memory::dims dims(list.begin(), list.begin() + spatial);
  dims[0] = first;
  return dims;
}

memory::desc ChannelsLast(const memory::dims& dims, ops::DType type) {
  return memory::desc(dims, TypeOf(type),
                      dims.size() == 4 ? memory::format_tag::nhwc : memory::format_tag::ndhwc);
}

memory::desc AnyLayout(const memory::dims& dims, ops::DType type) {
  return memory::desc(dims, TypeOf(type), memory::format_tag::any);
}

bool IsFast(std::string_view implementation) { return !implementation.starts_with("ref"); }

// Returns true if oneDNN 3.2 may compute the convolution wrongly. Its bf16 code for AMX does so where kernel
// and stride are even and the input's channels are no multiple of 32: in 408 of 8,532 convolutions that were
// tried on such a CPU, all without padding and from 16 channels on, but not in all of those. No gradient was
// wrong. onednn_sweep_test looks for others.
bool MayBeWrong(std::string_view implementation, const ConvolutionProblem& p) {
  if (p.type != ops::DType::kBFloat16 || !implementation.starts_with("brgconv:avx512_core_amx")) return false;
  const int64_t channels = p.input_channels / p.groups;
  bool even = false;
  for (int64_t d = 0; d < p.spatial; ++d) even |= p.kernel[At(d)] % 2 == 0 && p.stride[At(d)] % 2 == 0;
  return even && channels >= 16 && channels % 32 != 0;
}

// Returns true if all products of a result are added one after the other. In f32, the error of such a sum of
// 9 * 512 products is five times that of one which is added block by block.
bool AddsInOneChain(std::string_view implementation) { return implementation.starts_with("brg"); }

}  // namespace

std::shared_ptr<const ConvolutionPlan> ConvolutionPlan::Of(const LaidConvolution& laid) {
  static auto& plans = *new PlanTable<LaidConvolution, const ConvolutionPlan>(kMaxPlans);
  return plans.Find(laid, [&] { return std::make_shared<const ConvolutionPlan>(laid); });
}

ConvolutionPlan::ConvolutionPlan(const LaidConvolution& laid) : laid_(laid) {
  ThreadStream();  // primitives are built for the number of threads that this thread may use
  const bool as_is = laid.input == Layout::kChannelsLast && laid.output == Layout::kChannelsLast;
  if (TakesPlanes()) usable_ = CreateAll(Way::kPlanes);
  if (!usable_ && !as_is && problem().type == ops::DType::kFloat32 && !Sums())
    usable_ = CreateAll(Way::kBlocked);
  if (!usable_) usable_ = CreateAll(as_is ? Way::kAsIs : Way::kConverted);
}

// A product of matrices in which an image's channels are rows already. With few positions, converting them
// costs less than what oneDNN loses.
bool ConvolutionPlan::TakesPlanes() const {
  const ConvolutionProblem& p = problem();
  bool pointwise = p.groups == 1 && p.type == ops::DType::kFloat32;
  for (size_t d = 0; d < static_cast<size_t>(p.spatial); ++d)
    pointwise &= p.kernel[d] == 1 && p.stride[d] == 1 && p.padding[d] == 0;
  return pointwise && laid_.input == Layout::kContiguous && laid_.output == Layout::kContiguous &&
         Positions(p.output, p.spatial) >= kMinPlane;
}

// ---- shapes

int64_t ConvolutionPlan::tiles() const { return CeilDivide(problem().output[0], cut_.rows); }

bool ConvolutionPlan::Shape::SamePrimitive(const Shape& other) const {
  return images == other.images && channels == other.channels && rows == other.rows &&
         input_rows == other.input_rows && before == other.before;
}

ConvolutionPlan::Shape ConvolutionPlan::ShapeOf(int64_t slice, int64_t image, int64_t tile) const {
  const ConvolutionProblem& p = problem();
  Shape shape;
  shape.images = std::min(cut_.images, p.batch - image);
  shape.channels = std::min(cut_.channels, SlicedChannels(p) - slice * cut_.channels);
  shape.first_row = tile * cut_.rows;
  shape.rows = std::min(cut_.rows, p.output[0] - shape.first_row);
  if (p.direction != Family::kConvolution) {
    shape.input_rows = p.input[0];
    shape.before = p.padding[0];
    return shape;
  }
  const int64_t begin = shape.first_row * p.stride[0] - p.padding[0];
  const int64_t end = begin + (shape.rows - 1) * p.stride[0] + p.dilation[0] * (p.kernel[0] - 1) + 1;
  shape.first_input_row = std::max<int64_t>(begin, 0);
  shape.input_rows = std::min(end, p.input[0]) - shape.first_input_row;
  shape.before = std::max<int64_t>(-begin, 0);
  return shape;
}

bool ConvolutionPlan::CreateAll(Way way) {
  way_ = way;
  cut_ = ConvolutionCut::Of(problem(), way);
  if (CreateCut()) return true;
  cut_ = ConvolutionCut::Unsliced(problem(), way);
  return CreateCut();
}

// Returns false if oneDNN refuses a shape.
bool ConvolutionPlan::CreateCut() {
  primitives_.clear();
  slice_bytes_ = 0;
  const int64_t batch = problem().batch, remainder = batch / cut_.images * cut_.images;
  for (const int64_t slice : {int64_t{0}, cut_.slices - 1})
    for (const int64_t image : {int64_t{0}, remainder})
      for (int64_t tile = 0; image < batch && tile < tiles(); ++tile)
        if (!Create(ShapeOf(slice, image, tile))) return false;
  parts_ = cut_.slices * (Sums() ? cut_.sums : CeilDivide(batch, cut_.images) * tiles());
  return true;
}

// ---- tensors

ConvolutionPlan::Side ConvolutionPlan::SlicedSide() const {
  return problem().direction == Family::kConvolutionInput ? Side::kInput : Side::kOutput;
}

int64_t ConvolutionPlan::AllChannels(Side side) const {
  return side == Side::kInput ? problem().input_channels : problem().output_channels;
}

const ConvolutionProblem::List& ConvolutionPlan::SizesOf(Side side) const {
  return side == Side::kInput ? problem().input : problem().output;
}

ConvolutionPlan::SideStrides ConvolutionPlan::StridesOf(Side side) const {
  const int64_t channels = AllChannels(side), positions = Positions(SizesOf(side), problem().spatial);
  const int64_t row = positions / SizesOf(side)[0];
  const Layout layout = side == Side::kInput ? laid_.input : laid_.output;
  if (layout == Layout::kContiguous) return {channels * positions, positions, row};
  return {channels * positions, 1, row * channels};
}

memory::dims ConvolutionPlan::DimsOf(Side side, const Shape& shape) const {
  memory::dims dims =
      Dims(SizesOf(side), problem().spatial, side == Side::kInput ? shape.input_rows : shape.rows);
  dims.insert(dims.begin(), {shape.images, side == SlicedSide() ? shape.channels : AllChannels(side)});
  return dims;
}

memory::desc ConvolutionPlan::Theirs(Side side, const Shape& shape) const {
  const memory::dims dims = DimsOf(side, shape);
  const SideStrides strides = StridesOf(side);
  // A single image is without gaps, whatever the other channels are.
  const int64_t image = shape.images == 1 && strides.channel != 1 ? dims[1] * strides.channel : strides.image;
  memory::dims all = {image, strides.channel, strides.row};
  for (size_t d = 3; d < dims.size(); ++d) all.push_back(all.back() / dims[d]);
  return memory::desc(dims, TypeOf(problem().type), all);
}

memory::dims ConvolutionPlan::WeightSizes(int64_t channels) const {
  const ConvolutionProblem& p = problem();
  memory::dims sizes = {p.output_channels / p.groups, p.input_channels / p.groups};
  if (p.groups == 1) sizes[SlicedSide() == Side::kInput ? 1 : 0] = channels;
  sizes.insert(sizes.end(), p.kernel.begin(), p.kernel.begin() + p.spatial);
  if (p.groups > 1) sizes.insert(sizes.begin(), p.groups);
  return sizes;
}

// ---- primitives

// Creates the shape's primitive, unless one serves it.
bool ConvolutionPlan::Create(const Shape& shape) {
  if (shape.input_rows < 1) return false;
  const auto same = [&](const Primitive& made) { return made.shape.SamePrimitive(shape); };
  if (std::ranges::any_of(primitives_, same)) return true;
  Primitive made;
  made.shape = shape;
  try {
    made.primitive = MakePrimitive(shape, made);
    if (!made.primitive) return false;
    SetConversions(made);
  } catch (const dnnl::error&) {
    return false;
  }
  slice_bytes_ = std::max(slice_bytes_, made.weight.get_size());
  primitives_.push_back(std::move(made));
  return true;
}

// As much as the last position needs, which may be less than the problem's padding.
memory::dims ConvolutionPlan::PaddingAfter(const Shape& shape) const {
  const ConvolutionProblem& p = problem();
  memory::dims after(At(p.spatial));
  for (int64_t d = 0; d < p.spatial; ++d) {
    const int64_t outputs = d == 0 ? shape.rows : p.output[At(d)],
                  inputs = d == 0 ? shape.input_rows : p.input[At(d)],
                  before = d == 0 ? shape.before : p.padding[At(d)];
    const int64_t read = (outputs - 1) * p.stride[At(d)] + p.dilation[At(d)] * (p.kernel[At(d)] - 1) + 1;
    after[At(d)] = std::max<int64_t>(read - inputs - before, 0);
  }
  return after;
}

// Sets the descriptions of its tensors, too. Returns an empty primitive if none is fast. All shapes of a
// slice get weights of the same layout.
dnnl::primitive ConvolutionPlan::MakePrimitive(const Shape& shape, Primitive& made) const {
  const ConvolutionProblem& p = problem();
  const bool blocked = way_ == Way::kBlocked;
  const bool convert =
      blocked || (Sums() && (Converts(way_) || cut_.NanosecondsPerByte(p) > kWorthConverting));
  const auto tensor = [&](Side side) {
    const memory::dims dims = DimsOf(side, shape);
    if (way_ == Way::kPlanes) return Theirs(side, shape);
    return convert ? AnyLayout(dims, p.type) : ChannelsLast(dims, p.type);
  };
  const memory::desc input = tensor(Side::kInput), output = tensor(Side::kOutput);
  memory::desc weight = AnyLayout(WeightSizes(shape.channels), Sums() ? ops::DType::kFloat32 : p.type);
  for (const Primitive& other : primitives_)
    if (other.shape.channels == shape.channels) weight = other.weight;
  const memory::desc bias =
      p.bias ? memory::desc({shape.channels}, TypeOf(p.type), memory::format_tag::x) : memory::desc();

  const memory::dims stride = Dims(p.stride, p.spatial, p.stride[0]);
  memory::dims dilation = Dims(p.dilation, p.spatial, p.dilation[0]);
  for (int64_t& each : dilation) --each;
  const memory::dims before = Dims(p.padding, p.spatial, shape.before);
  const memory::dims after = PaddingAfter(shape);

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const bool backward = p.direction != Family::kConvolution;
  const dnnl::convolution_forward::primitive_desc forward(
      CpuEngine(), backward ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
      algorithm, input, Sums() ? AnyLayout(WeightSizes(shape.channels), p.type) : weight, bias, output,
      stride, dilation, before, after, attributes);
  // Takes oneDNN's first implementation that is surely right, and makes the primitive unless that is slow.
  const auto make = [&](auto described, auto in, auto w, auto out, auto primitive) -> dnnl::primitive {
    while (MayBeWrong(described.impl_info_str(), p) || (blocked && AddsInOneChain(described.impl_info_str())))
      if (!described.next_impl()) return {};
    if (!IsFast(described.impl_info_str())) return {};
    made.input.ours = (described.*in)();
    made.weight = (described.*w)();
    made.output.ours = (described.*out)();
    made.space = described.scratchpad_desc();
    return primitive(described);
  };
  if (p.direction == Family::kConvolutionInput) {
    using Described = dnnl::convolution_backward_data::primitive_desc;
    return make(Described(CpuEngine(), algorithm, input, weight, output, stride, dilation, before, after,
                          forward, attributes),
                &Described::diff_src_desc, &Described::weights_desc, &Described::diff_dst_desc,
                [](const Described& d) { return dnnl::convolution_backward_data(d); });
  }
  if (Sums()) {
    using Described = dnnl::convolution_backward_weights::primitive_desc;
    return make(Described(CpuEngine(), algorithm, input, weight, output, stride, dilation, before, after,
                          forward, attributes),
                &Described::src_desc, &Described::diff_weights_desc, &Described::diff_dst_desc,
                [](const Described& d) { return dnnl::convolution_backward_weights(d); });
  }
  using Described = dnnl::convolution_forward::primitive_desc;
  return make(forward, &Described::src_desc, &Described::weights_desc, &Described::dst_desc,
              [](const Described& d) { return dnnl::convolution_forward(d); });
}

// Lays out the scratch memory, too.
void ConvolutionPlan::SetConversions(Primitive& made) const {
  size_t next = 0;
  const auto take = [&](size_t bytes) {
    const size_t at = next;
    next += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  take(made.space.get_size());
  for (const Side side : {Side::kInput, Side::kOutput}) {
    Tensor& tensor = side == Side::kInput ? made.input : made.output;
    tensor.theirs = Theirs(side, made.shape);
    if (tensor.theirs == tensor.ours) continue;
    const bool result = !Sums() && side == ResultSide();
    const memory::desc &from = result ? tensor.ours : tensor.theirs,
                       &to = result ? tensor.theirs : tensor.ours;
    tensor.convert = dnnl::reorder(dnnl::reorder::primitive_desc(CpuEngine(), from, CpuEngine(), to));
    tensor.at = take(tensor.ours.get_size());
  }
  if (Sums()) made.sum_at = take(made.weight.get_size());
  made.scratch_bytes = next;
}

// ---- running

const ConvolutionPlan::Primitive& ConvolutionPlan::PrimitiveOf(const Shape& shape) const {
  const auto found = std::ranges::find_if(
      primitives_, [&](const Primitive& made) { return made.shape.SamePrimitive(shape); });
  XPUD_CHECK(found != primitives_.end());
  return *found;
}

std::byte* ConvolutionPlan::Place(Side side, std::byte* data, const Shape& shape, int64_t slice,
                                  int64_t image) const {
  const SideStrides strides = StridesOf(side);
  const int64_t channel = side == SlicedSide() ? slice * cut_.channels : 0;
  const int64_t row = side == Side::kInput ? shape.first_input_row : shape.first_row;
  return data + (image * strides.image + channel * strides.channel + row * strides.row) *
                    static_cast<int64_t>(ops::SizeOf(problem().type));
}

// `adds`: a gradient is added to what operands.weight has.
void ConvolutionPlan::Execute(const Shape& shape, int64_t slice, int64_t image,
                              const ConvolutionOperands& operands, void* scratch, bool adds) const {
  const Primitive& made = PrimitiveOf(shape);
  auto* const space = made.scratch_bytes <= XPUD_HOST_SCRATCH_BYTES ? static_cast<std::byte*>(scratch)
                                                                    : ThreadMemory(made.scratch_bytes);
  const dnnl::stream& stream = ThreadStream();
  const auto of = [&](const memory::desc& desc, std::byte* data) { return memory(desc, CpuEngine(), data); };
  const memory in_theirs = of(made.input.theirs, Place(Side::kInput, operands.input, shape, slice, image)),
               out_theirs =
                   of(made.output.theirs, Place(Side::kOutput, operands.output, shape, slice, image));
  const auto ours = [&](const Tensor& tensor, const memory& theirs) {
    return tensor.convert ? of(tensor.ours, space + tensor.at) : theirs;
  };
  const memory in = ours(made.input, in_theirs), out = ours(made.output, out_theirs),
               weight = of(made.weight, adds ? space + made.sum_at : operands.weight),
               room = of(made.space, space);
  const auto convert = [&](const Tensor& tensor, const memory& from, const memory& to) {
    if (tensor.convert) tensor.convert.execute(stream, const_cast<memory&>(from), const_cast<memory&>(to));
  };
  const bool input_is_result = problem().direction == Family::kConvolutionInput;
  if (!input_is_result) convert(made.input, in_theirs, in);
  if (input_is_result || Sums()) convert(made.output, out_theirs, out);

  std::vector<dnnl_exec_arg_t> arguments = {
      {input_is_result ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, in.get()},
      {Sums() ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight.get()},
      {input_is_result || Sums() ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, out.get()},
      {DNNL_ARG_SCRATCHPAD, room.get()}};
  const memory::desc row({shape.channels}, TypeOf(problem().type), memory::format_tag::x);
  const memory bias =
      problem().bias
          ? of(row, operands.bias + slice * cut_.channels * static_cast<int64_t>(ops::SizeOf(problem().type)))
          : memory();
  if (problem().bias) arguments.push_back({DNNL_ARG_BIAS, bias.get()});
  const dnnl_status_t status = dnnl_primitive_execute(made.primitive.get(), stream.get(),
                                                      static_cast<int>(arguments.size()), arguments.data());
  XPUD_CHECK(status == dnnl_success);

  if (input_is_result) convert(made.input, in, in_theirs);
  if (!input_is_result && !Sums()) convert(made.output, out, out_theirs);
  if (!adds) return;
  auto* const sum = reinterpret_cast<float*>(operands.weight);
  const auto* const term = reinterpret_cast<const float*>(space + made.sum_at);
  const size_t elements = made.weight.get_size() / sizeof(float);
  for (size_t i = 0; i < elements; ++i) sum[i] += term[i];
}

void ConvolutionPlan::RunPart(int64_t part, const ConvolutionOperands& operands, void* scratch) const {
  const int64_t per_slice = parts_ / cut_.slices, slice = part / per_slice, rest = part % per_slice;
  if (!Sums()) {
    const int64_t image = rest / tiles() * cut_.images;
    Execute(ShapeOf(slice, image, rest % tiles()), slice, image, operands, scratch, false);
    return;
  }
  const int64_t images = cut_.ImagesPerSum(problem().batch), first = rest * images,
                last = std::min(first + images, problem().batch);
  for (int64_t image = first; image < last; image += cut_.images)
    Execute(ShapeOf(slice, image, 0), slice, image, operands, scratch, /*adds=*/image != first);
}

std::byte* ConvolutionPlan::SumOf(int64_t part, std::byte* sums) const {
  const int64_t slice = part / cut_.sums, sum = part % cut_.sums;
  return sums + (sum * cut_.slices + slice) * static_cast<int64_t>(slice_bytes_);
}

void ConvolutionPlan::AddSums(std::byte* sums, int64_t first, int64_t last) const {
  auto* const sum = reinterpret_cast<float*>(sums);
  for (int64_t other = 1; other < cut_.sums; ++other) {
    const float* const term = sum + other * weight_elements();
    for (int64_t i = first; i < last; ++i) sum[i] += term[i];
  }
}

void ConvolutionPlan::Reorder(const WeightView& view, int64_t slice, std::byte* packed, bool packs) const {
  const ConvolutionProblem& p = problem();
  memory::dims strides(view.strides.begin(), view.strides.begin() + p.spatial + 2);
  const int64_t first = slice * cut_.channels * strides[SlicedSide() == Side::kInput ? 1 : 0];
  if (p.groups > 1) strides.insert(strides.begin(), view.strides[0] * (p.output_channels / p.groups));
  const int64_t channels = std::min(cut_.channels, SlicedChannels(p) - slice * cut_.channels);
  const ops::DType type = Sums() ? ops::DType::kFloat32 : p.type;
  const auto used =
      std::ranges::find(primitives_, channels, [](const Primitive& made) { return made.shape.channels; });
  XPUD_CHECK(used != primitives_.end());
  memory theirs(memory::desc(WeightSizes(channels), TypeOf(type), strides), CpuEngine(),
                view.data + first * static_cast<int64_t>(ops::SizeOf(type))),
      ours(used->weight, CpuEngine(), packed);
  memory &from = packs ? theirs : ours, &to = packs ? ours : theirs;
  dnnl::reorder(from, to).execute(ThreadStream(), from, to);
}

}  // namespace xpud::kernels::onednn
