// How a convolution is cut for one thread each. Sizes alone determine the cut, so results do not depend on
// the number of workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/library/convolution/convolution_problem.h"

namespace xpud::kernels::onednn {

// How the tensors' layout suits oneDNN.
enum class Way : uint8_t {
  kAsIs,
  kConverted,  // parts convert what they need to channels-last
  kBlocked,    // parts convert what they need to blocks of channels
  kPlanes,     // contiguous images are taken as they are, each whole
};
constexpr bool Converts(Way way) { return way == Way::kConverted || way == Way::kBlocked; }

// A CPU can run others' work between two groups of a launch, but not inside one. So neither a part nor a
// group takes longer than this by the estimate, if it can be cut: an image of 32 channels of a gradient
// cannot.
inline constexpr double kMaxConvolutionNanoseconds = 1e6;

struct ConvolutionCut {
  // A slice of the weight has some of its output channels (for the gradient by the input: of its input
  // channels) and fits a core's cache. There is one slice if there are groups.
  int64_t channels = 1;
  int64_t images = 1;  // that one call of oneDNN takes
  int64_t rows = 1;    // of the output, in a part; all of them in a gradient
  int64_t sums = 1;    // of the gradient by the weight: each is over some images, and they are added in order

  int64_t slices = 1;
  double nanoseconds = 0;  // an estimate for the whole problem on one thread

  static ConvolutionCut Of(const convolution::ConvolutionProblem& problem, Way way);
  // The same with one slice and all rows, for what oneDNN refuses.
  static ConvolutionCut Unsliced(const convolution::ConvolutionProblem& problem, Way way);

  double NanosecondsPerByte(const convolution::ConvolutionProblem& problem) const;
  // Images of a sum, a multiple of `images`.
  int64_t ImagesPerSum(int64_t batch) const;
};

// The channels that slices cut.
int64_t SlicedChannels(const convolution::ConvolutionProblem& problem);
// Positions of a tensor's channel: the product of its spatial sizes.
int64_t Positions(const convolution::ConvolutionProblem::List& sizes, int64_t spatial);

}  // namespace xpud::kernels::onednn
