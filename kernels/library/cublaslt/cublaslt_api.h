// The functions of NVIDIA's cuBLASLt that this folder calls, loaded with dlopen. They are declared here,
// because xpud is built without NVIDIA's headers. Loaded once for each process and never unloaded.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace xpud::kernels::cublaslt {

enum class Status : int { kSuccess = 0, kAllocFailed = 3, kInvalidValue = 7, kNotSupported = 15 };
enum class DataType : int { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 14 };
enum class ComputeType : int {
  kFloat32 = 68,
  kFloat64 = 70
};  // kFloat32 is true f32; TF32 has its own number
enum class Operation : int { kNone = 0, kTranspose = 1 };
enum class Epilogue : uint32_t {
  kDefault = 1,
  kRelu = 2,
  kBias = 4,
  kReluBias = 6,
  kGelu = 32,
  kGeluBias = 36
};
enum class LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };
enum class DescAttribute : int {
  kTransposeA = 3,
  kTransposeB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kBiasType = 26
};
enum class PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemes = 3,
  kAlignmentA = 5,
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8,
};
constexpr uint32_t kReduceInComputeType = 2;  // the scheme that adds the parts of a sum in the compute type
struct Algo {
  uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

using Handle = void*;
using Desc = void*;
using Layout = void*;
using Preference = void*;

struct Api {
  // See cuda::Open; the environment variable XPUD_CUBLASLT may name the file. Prefers version 13 to 12.
  // Returns NotFound if there is none.
  static absl::StatusOr<const Api*> Get();

  Status (*create)(Handle*);
  Status (*layout_create)(Layout*, DataType, uint64_t rows, uint64_t columns, int64_t leading);
  Status (*layout_destroy)(Layout);
  Status (*layout_set)(Layout, LayoutAttribute, const void*, size_t);
  Status (*desc_create)(Desc*, ComputeType, DataType scale);
  Status (*desc_destroy)(Desc);
  Status (*desc_set)(Desc, DescAttribute, const void*, size_t);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void*, size_t);
  Status (*heuristics)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted,
                       Heuristic*, int* found);
  Status (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                   const void* beta, const void* c, Layout, void* d, Layout, const Algo*, void* workspace,
                   size_t workspace_bytes, void* stream);
};

}  // namespace xpud::kernels::cublaslt
