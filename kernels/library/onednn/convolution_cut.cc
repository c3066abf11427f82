#include "kernels/library/onednn/convolution_cut.h"

#include <algorithm>
#include <cmath>

namespace xpud::kernels::onednn {
namespace {

using convolution::ConvolutionProblem;

constexpr double kPartNanoseconds = 60e3;                 // parts are not cut below this
constexpr double kSumNanoseconds = 8 * kPartNanoseconds;  // nor sums, whose addition costs more
constexpr int64_t kParts = 16;                            // are enough for any batch
constexpr int64_t kMaxSums = 8;
constexpr int64_t kMinChannels = 32;        // of a slice
constexpr int64_t kCacheBytes = 512 << 10;  // of a slice, or of the rows that a part converts
constexpr int64_t kStepBytes = 16 << 20;    // of converted images

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Times(double whole, double part) { return std::max<int64_t>(static_cast<int64_t>(whole / part), 1); }

int64_t ImageBytes(const ConvolutionProblem& p) {
  return (p.input_channels * Positions(p.input, p.spatial) +
          p.output_channels * Positions(p.output, p.spatial)) *
         static_cast<int64_t>(ops::SizeOf(p.type));
}

// For one core of an ordinary machine. It determines only the size of parts.
double Estimate(const ConvolutionProblem& p, Way way) {
  const int64_t outputs = p.batch * p.output_channels * Positions(p.output, p.spatial);
  const int64_t channels = p.input_channels / p.groups;
  const double operations =
      2.0 * static_cast<double>(outputs) * static_cast<double>(channels * Positions(p.kernel, p.spatial));
  const double rate = p.groups > 1 ? 40 : p.type == ops::DType::kFloat32 ? 100 : 300;  // in a nanosecond
  const double byte = Converts(way) ? 0.15 : 0.05;                                     // nanoseconds
  return operations / rate + static_cast<double>(p.batch * ImageBytes(p)) * byte;
}

// As many as fit a cache; with few images fewer if these are not cut into rows.
int64_t ChannelsOfSlice(const ConvolutionProblem& p, Way way, double nanoseconds) {
  const int64_t all = SlicedChannels(p);
  if (p.groups > 1) return all;
  const int64_t bytes = p.output_channels * p.input_channels * Positions(p.kernel, p.spatial) *
                        static_cast<int64_t>(ops::SizeOf(p.type));
  int64_t slices = CeilDivide(bytes, kCacheBytes);
  if (p.direction != ops::Family::kConvolution || way == Way::kPlanes)
    slices = std::max(slices, std::min(CeilDivide(kMaxSums, p.batch), Times(nanoseconds, kSumNanoseconds)));
  // Where neither rows nor images can be cut.
  if (p.direction == ops::Family::kConvolutionInput || way == Way::kPlanes) {
    const double image = nanoseconds / static_cast<double>(p.batch);
    slices = std::max(slices, static_cast<int64_t>(std::ceil(image / kMaxConvolutionNanoseconds)));
  }
  if (slices == 1) return all;
  const int64_t channels = all / slices / kMinChannels * kMinChannels;
  return std::min(std::max(channels, kMinChannels), all);
}

// Rows of a part: all, unless there are too few parts, or the rows to convert do not fit a cache.
int64_t RowsOfPart(const ConvolutionProblem& p, const ConvolutionCut& cut, Way way) {
  const double part =
      cut.nanoseconds / static_cast<double>(p.batch * cut.slices) * static_cast<double>(cut.images);
  const int64_t parts = CeilDivide(p.batch, cut.images) * cut.slices;
  int64_t tiles = std::min(Times(part, kPartNanoseconds), CeilDivide(kParts, parts));
  if (Converts(way)) {
    const int64_t fitting = CeilDivide(ImageBytes(p) * cut.images, kCacheBytes);
    tiles = std::max(tiles, std::min(Times(part, kPartNanoseconds / 2), fitting));
  }
  tiles = std::max(tiles, static_cast<int64_t>(std::ceil(part / kMaxConvolutionNanoseconds)));
  return CeilDivide(p.output[0], std::clamp<int64_t>(tiles, 1, p.output[0]));
}

void CutImages(const ConvolutionProblem& p, Way way, ConvolutionCut& cut) {
  const bool sums = p.direction == ops::Family::kConvolutionWeight;
  const double image = cut.nanoseconds / static_cast<double>(p.batch * cut.slices);
  const int64_t most_images =
      way == Way::kPlanes ? 1 : std::clamp<int64_t>(kStepBytes / ImageBytes(p), 1, p.batch);
  cut.images = std::min(Times(sums ? kSumNanoseconds : kPartNanoseconds, image), most_images);
  const bool rows = p.direction == ops::Family::kConvolution && way != Way::kPlanes;
  cut.rows = rows ? RowsOfPart(p, cut, way) : p.output[0];
  if (!sums) return;
  const int64_t most = std::min(CeilDivide(kMaxSums, cut.slices),
                                Times(image * static_cast<double>(p.batch), kSumNanoseconds));
  cut.sums = std::clamp<int64_t>(most, 1, CeilDivide(p.batch, cut.images));
  cut.sums = CeilDivide(p.batch, cut.ImagesPerSum(p.batch));
}

}  // namespace

int64_t SlicedChannels(const ConvolutionProblem& p) {
  return p.direction == ops::Family::kConvolutionInput ? p.input_channels : p.output_channels;
}

int64_t Positions(const ConvolutionProblem::List& sizes, int64_t spatial) {
  int64_t product = 1;
  for (int64_t d = 0; d < spatial; ++d) product *= sizes[static_cast<size_t>(d)];
  return product;
}

double ConvolutionCut::NanosecondsPerByte(const ConvolutionProblem& p) const {
  return nanoseconds / static_cast<double>(p.batch * ImageBytes(p));
}

int64_t ConvolutionCut::ImagesPerSum(int64_t batch) const {
  return CeilDivide(CeilDivide(batch, images), sums) * images;
}

ConvolutionCut ConvolutionCut::Of(const ConvolutionProblem& p, Way way) {
  ConvolutionCut cut;
  cut.nanoseconds = Estimate(p, way);
  cut.channels = ChannelsOfSlice(p, way, cut.nanoseconds);
  cut.slices = CeilDivide(SlicedChannels(p), cut.channels);
  CutImages(p, way, cut);
  return cut;
}

ConvolutionCut ConvolutionCut::Unsliced(const ConvolutionProblem& p, Way way) {
  ConvolutionCut cut;
  cut.nanoseconds = Estimate(p, way);
  cut.channels = SlicedChannels(p);
  CutImages(p, way, cut);
  cut.rows = p.output[0];
  return cut;
}

}  // namespace xpud::kernels::onednn
