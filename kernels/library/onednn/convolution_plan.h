// How oneDNN computes a convolution or one of its gradients: primitives for its parts (ConvolutionCut).
//
// Tensors are in a type that this CPU multiplies natively, without gaps. oneDNN computes in the layout that
// it is fastest in; a part converts what it needs into the thread's scratch memory, and its result back.
// Weights are in oneDNN's layout, slice by slice (Pack, Unpack). Each part runs on one thread:
// - the convolution: some rows of some images, for a slice of the output channels
// - the gradient by the input: some images, for a slice of the input channels
// - the gradient by the weight: a slice of it, summed over some images; other images' sums are added to it
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/library/onednn/convolution_cut.h"

namespace xpud::kernels::onednn {

using convolution::ConvolutionOperands;
using convolution::ConvolutionProblem;
using convolution::Layout;

// A problem, and how its tensors lie in memory. A plain value, compared by bytes.
struct LaidConvolution {
  ConvolutionProblem problem;
  Layout input = Layout::kChannelsLast, output = Layout::kChannelsLast;
  uint8_t unused[6] = {};

  bool operator==(const LaidConvolution& other) const {
    return std::memcmp(this, &other, sizeof(*this)) == 0;
  }
  template <typename H>
  friend H AbslHashValue(H state, const LaidConvolution& c) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&c), sizeof(c));
  }
};
static_assert(std::has_unique_object_representations_v<LaidConvolution>);

// A weight as the caller has it, in the problem's type (for the gradient by the weight: f32): [Co, Ci/groups,
// K...].
struct WeightView {
  std::byte* data = nullptr;
  std::array<int64_t, ops::kMaxSpatial + 2> strides{};  // of the problem's spatial dimensions
};

class ConvolutionPlan {
 public:
  // Creates the primitives, which takes milliseconds.
  explicit ConvolutionPlan(const LaidConvolution& laid);
  // Returns the plan of a problem, which the process keeps for a while. Thread-safe.
  static std::shared_ptr<const ConvolutionPlan> Of(const LaidConvolution& laid);

  // False if oneDNN has no fast implementation.
  bool usable() const { return usable_; }
  int64_t parts() const { return parts_; }
  double nanoseconds() const { return cut_.nanoseconds; }  // an estimate for the whole problem
  int64_t slices() const { return cut_.slices; }
  int64_t sums() const { return cut_.sums; }
  size_t slice_bytes() const { return slice_bytes_; }
  size_t weight_bytes() const { return slice_bytes_ * static_cast<size_t>(cut_.slices); }  // of all slices

  // Parts of the same slice follow each other.
  int64_t SliceOf(int64_t part) const { return part / (parts_ / cut_.slices); }
  // Computes a part. `operands` has the problem's tensors by their role in the convolution; its weight is the
  // part's packed slice, or where its sum belongs. `scratch` has XPUD_HOST_SCRATCH_BYTES.
  void RunPart(int64_t part, const ConvolutionOperands& operands, void* scratch) const;
  // Where the sum of a part of the gradient by the weight belongs: the sums lie one after the other, each
  // with weight_bytes().
  std::byte* SumOf(int64_t part, std::byte* sums) const;
  // Adds elements [first, last) of all sums to the first one.
  void AddSums(std::byte* sums, int64_t first, int64_t last) const;
  int64_t weight_elements() const { return static_cast<int64_t>(weight_bytes() / sizeof(float)); }

  void Pack(const WeightView& from, int64_t slice, std::byte* to) const { Reorder(from, slice, to, true); }
  void Unpack(std::byte* from, int64_t slice, const WeightView& to) const { Reorder(to, slice, from, false); }

 private:
  // What one call of oneDNN takes.
  struct Shape {
    int64_t images = 0, channels = 0;             // channels: of the slice
    int64_t first_row = 0, rows = 0;              // of the output
    int64_t first_input_row = 0, input_rows = 0;  // that it reads
    int64_t before = 0;                           // rows of padding above these
    bool SamePrimitive(const Shape& other) const;
  };
  enum class Side : uint8_t { kInput, kOutput };
  struct Tensor {
    dnnl::memory::desc theirs, ours;
    dnnl::reorder convert;  // to ours, or of a result to theirs; empty if these are the same
    size_t at = 0;          // in scratch
  };
  struct Primitive {
    Shape shape;
    dnnl::primitive primitive;
    Tensor input, output;
    dnnl::memory::desc weight, space;
    size_t sum_at = 0;         // in scratch: a gradient by the weight that is added to others
    size_t scratch_bytes = 0;  // begins with `space`
  };
  struct SideStrides {  // in elements
    int64_t image, channel, row;
  };

  bool TakesPlanes() const;
  bool CreateAll(Way way);
  bool CreateCut();
  int64_t tiles() const;
  Shape ShapeOf(int64_t slice, int64_t image, int64_t tile) const;
  bool Create(const Shape& shape);
  dnnl::primitive MakePrimitive(const Shape& shape, Primitive& made) const;
  void SetConversions(Primitive& made) const;

  const ConvolutionProblem& problem() const { return laid_.problem; }
  bool Sums() const { return problem().direction == ops::Family::kConvolutionWeight; }
  Side SlicedSide() const;
  Side ResultSide() const { return SlicedSide(); }
  int64_t AllChannels(Side side) const;
  const ConvolutionProblem::List& SizesOf(Side side) const;
  SideStrides StridesOf(Side side) const;
  dnnl::memory::dims DimsOf(Side side, const Shape& shape) const;
  dnnl::memory::desc Theirs(Side side, const Shape& shape) const;
  dnnl::memory::dims WeightSizes(int64_t channels) const;
  dnnl::memory::dims PaddingAfter(const Shape& shape) const;

  const Primitive& PrimitiveOf(const Shape& shape) const;
  std::byte* Place(Side side, std::byte* data, const Shape& shape, int64_t slice, int64_t image) const;
  void Execute(const Shape& shape, int64_t slice, int64_t image, const ConvolutionOperands& operands,
               void* scratch, bool adds) const;
  void Reorder(const WeightView& view, int64_t slice, std::byte* packed, bool packs) const;

  const LaidConvolution laid_;
  Way way_ = Way::kAsIs;
  ConvolutionCut cut_;
  bool usable_ = false;
  int64_t parts_ = 0;
  size_t slice_bytes_ = 0;
  std::vector<Primitive> primitives_;
};

}  // namespace xpud::kernels::onednn
