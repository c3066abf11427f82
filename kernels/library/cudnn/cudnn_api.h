// The part of NVIDIA's cuDNN (its graph API) that this folder calls, loaded with dlopen. It is declared here,
// because xpud is built without NVIDIA's headers. Loaded once for each process and never unloaded.
// Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace xpud::kernels::cudnn {

enum class Status : int { kSuccess = 0, kInternalError = 4000, kNotSupported = 3000 };
// Errors are in groups of a thousand; whatever is not supported is in this one.
constexpr int kStatusGroup = 1000;

enum class DataType : int { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 9 };
enum class DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};
enum class AttributeType : int {
  kHandle = 0,
  kDataType = 1,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kDescriptor = 15,
};
enum class Attribute : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardWeight = 703,
  kForwardInput = 704,
  kForwardOutput = 705,
  kDataAlpha = 706,
  kDataBeta = 707,
  kDataConvolution = 708,
  kDataWeight = 709,
  kDataInput = 710,
  kDataOutput = 711,
  kFilterAlpha = 712,
  kFilterBeta = 713,
  kFilterConvolution = 714,
  kFilterWeight = 715,
  kFilterInput = 716,
  kFilterOutput = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
};
enum class ConvolutionMode : int { kCrossCorrelation = 1 };
enum class HeuristicMode : int { kFallback = 2, kA = 3 };
enum class NumericalNote : int { kTensorCore = 0, kDownConvertInputs = 1, kNonDeterministic = 4 };
constexpr int64_t kMaxNotes = 16;

using Handle = void*;
using Descriptor = void*;

struct Api {
  // See cuda::Open; the environment variable XPUD_CUDNN may name the file. Version 9. Returns NotFound if
  // there is none. Its own parts are loaded when first needed.
  static absl::StatusOr<const Api*> Get();

  Status (*create)(Handle*);
  Status (*set_stream)(Handle, void* stream);
  Status (*descriptor_create)(DescriptorType, Descriptor*);
  Status (*descriptor_destroy)(Descriptor);
  Status (*descriptor_finalize)(Descriptor);
  Status (*set)(Descriptor, Attribute, AttributeType, int64_t count, const void*);
  Status (*get)(Descriptor, Attribute, AttributeType, int64_t wanted, int64_t* count, void*);
  Status (*execute)(Handle, Descriptor plan, Descriptor variant_pack);
};

}  // namespace xpud::kernels::cudnn
