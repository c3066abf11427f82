// How oneDNN computes one ConvolutionProblem: primitives for its parts. The problem alone determines the
// parts, so results do not depend on the number of workers.
//
// Inputs and outputs are channels-last without gaps, in a type that this CPU multiplies natively. Weights are
// in the layout that oneDNN chose (Pack, Unpack). Each part runs on one thread:
// - the convolution: some rows of an image's output (rows: the first spatial dimension)
// - the gradient by the input: an image
// - the gradient by the weight: some images, whose sum is f32 and is added to the others'
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/library/convolution/convolution_problem.h"

namespace xpud::kernels::onednn {

using convolution::ConvolutionOperands;
using convolution::ConvolutionProblem;

// A weight as the caller has it: [Co, Ci/groups, K...], for Pack and Unpack.
struct WeightView {
  std::byte* data = nullptr;
  std::array<int64_t, ops::kMaxSpatial + 2> strides{};  // of the problem's spatial dimensions
  ops::DType type = ops::DType::kFloat32;
  uint8_t unused[7] = {};
};

class ConvolutionPlan {
 public:
  // Creates the primitives, which takes milliseconds.
  explicit ConvolutionPlan(const ConvolutionProblem& problem);
  // Returns the plan of a problem, which the process keeps for a while. Thread-safe.
  static std::shared_ptr<const ConvolutionPlan> Of(const ConvolutionProblem& problem);

  // False if oneDNN has no fast implementation.
  bool usable() const { return usable_; }
  int64_t parts() const { return parts_; }
  double nanoseconds() const { return nanoseconds_; }         // an estimate for the whole problem
  size_t weight_bytes() const { return weight_.get_size(); }  // of a packed weight, or of a part's gradient

  // Computes part `index`. `operands` has the problem's tensors by their role in the convolution: the
  // gradient by the input writes `input`, the gradient by the weight writes the index-th array of
  // weight_bytes() at `weight`.
  void RunPart(int64_t index, const ConvolutionOperands& operands, void* scratch) const;
  // Adds elements [first, last) of all parts' gradients to the first part's.
  void SumParts(std::byte* weights, int64_t first, int64_t last) const;
  int64_t weight_elements() const { return static_cast<int64_t>(weight_bytes() / sizeof(float)); }
  // Converts layout and type.
  void Pack(const WeightView& from, std::byte* to) const { Reorder(from, to, /*packs=*/true); }
  void Unpack(std::byte* from, const WeightView& to) const { Reorder(to, from, /*packs=*/false); }

 private:
  using Descs = std::array<dnnl::memory::desc, 3>;  // input, weight, output

  struct Part {
    int64_t images = 1;
    int64_t first_row = 0, rows = 0;              // of the output
    int64_t first_input_row = 0, input_rows = 0;  // that it reads
    int64_t before = 0;                           // rows of padding above these
    bool operator==(const Part&) const = default;
  };
  struct Primitive {
    Part shape;  // with first rows 0
    dnnl::primitive primitive;
    Descs descs;
    dnnl::memory::desc scratch;
  };

  Part RowsOf(int64_t first, int64_t rows) const;
  int64_t RowTiles() const;
  bool CutRows(int64_t tiles);
  void CutImages();
  bool AddPart(const Part& part, int64_t image);
  bool Create(const Part& shape, Primitive& made);
  Descs DescribeTensors(const Part& shape) const;
  dnnl::memory::dims WeightSizes() const;
  void Reorder(const WeightView& view, std::byte* packed, bool packs) const;

  const ConvolutionProblem problem_;
  bool usable_ = false;
  int64_t parts_ = 0;
  double nanoseconds_ = 0;
  dnnl::memory::desc weight_;  // packed; empty until the first primitive has chosen it
  std::vector<std::unique_ptr<Primitive>> primitives_;
  struct Placed {
    Part part;
    int64_t image = 0;
    const Primitive* primitive = nullptr;
  };
  std::vector<Placed> placed_;  // of one image, or of the whole batch for the gradient by the weight
};

}  // namespace xpud::kernels::onednn
