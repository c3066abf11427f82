// How cuDNN computes one problem: the engine that it recommends, which is requested once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <level_zero/ze_api.h>

#include "kernels/library/convolution/convolution_problem.h"
#include "kernels/library/cudnn/cudnn_api.h"
#include "proto/base/mutex.h"

namespace xpud::kernels::cudnn {

// The properties by which cuDNN chooses an engine. A plain value, compared by bytes.
struct Problem {
  convolution::ConvolutionProblem convolution;
  convolution::Layout layout = convolution::Layout::kContiguous;  // of all tensors
  uint8_t alignment = 16;                                         // of all addresses, in bytes; at most 16
  bool tf32 = false;                                              // f32 may be multiplied in TF32
  bool deterministic = false;  // no engine whose results may differ from run to run
  uint8_t unused[4] = {};

  bool operator==(const Problem& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
  template <typename H>
  friend H AbslHashValue(H state, const Problem& p) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&p), sizeof(p));
  }
};
static_assert(std::has_unique_object_representations_v<Problem>);

constexpr size_t kMaxWorkspace = size_t{512} << 20;

ze_result_t ResultOf(Status status);

// A descriptor of the graph API. The first error stays; later calls do nothing.
class Object {
 public:
  Object(const Api& api, DescriptorType type) : api_(&api) {
    status_ = api.descriptor_create(type, &descriptor_);
  }
  Object(Object&& other) noexcept
      : api_(other.api_), descriptor_(std::exchange(other.descriptor_, nullptr)), status_(other.status_) {}
  Object& operator=(Object&&) = delete;
  ~Object() {
    if (descriptor_ != nullptr) api_->descriptor_destroy(descriptor_);
  }

  template <typename T>
  Object& Set(Attribute attribute, AttributeType type, std::span<const T> values) {
    if (status_ == Status::kSuccess)
      status_ = api_->set(descriptor_, attribute, type, static_cast<int64_t>(values.size()), values.data());
    return *this;
  }
  template <typename T>
  Object& Set(Attribute attribute, AttributeType type, const T& value) {
    return Set(attribute, type, std::span<const T>(&value, 1));
  }
  Object& Set(Attribute attribute, const Object& other) {
    if (status_ == Status::kSuccess) status_ = other.status_;
    return Set(attribute, AttributeType::kDescriptor, other.descriptor_);
  }
  Object& Finalize() {
    if (status_ == Status::kSuccess) status_ = api_->descriptor_finalize(descriptor_);
    return *this;
  }

  Descriptor get() const { return descriptor_; }
  Status status() const { return status_; }

 private:
  const Api* api_;
  Descriptor descriptor_ = nullptr;
  Status status_;
};

// Thread-safe. REQUIRES: the context of each handle is current.
class Plan {
 public:
  Plan(const Api& api, const Problem& problem, size_t most_workspace)
      : api_(api), problem_(problem), most_workspace_(most_workspace) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Returns the bytes of workspace that the engine needs. The first call chooses the engine, which takes
  // milliseconds, or longer if cuDNN compiles it.
  struct Prepared {
    Status status = Status::kSuccess;
    size_t workspace_bytes = 0;
  };
  Prepared Prepare(Handle handle);

  // Enqueues the convolution on the handle's stream. REQUIRES: Prepare succeeded; at least the workspace that
  // it returned.
  Status Run(Handle handle, const convolution::ConvolutionOperands& operands, void* workspace);

 private:
  Object TensorOf(int64_t id, int64_t first, int64_t channels,
                  const convolution::ConvolutionProblem::List& rest) const;
  Object MakeConvolution() const;
  Object MakeOperation(std::span<const Object> tensors, const Object& convolution) const;
  Status Choose(Handle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ChooseBy(Handle handle, HeuristicMode mode, const Object& graph) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Allows(const Object& config) const;

  const Api& api_;
  const Problem problem_;
  const size_t most_workspace_;
  Mutex mutex_;
  std::unique_ptr<Object> plan_ ABSL_GUARDED_BY(mutex_);
  size_t workspace_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace xpud::kernels::cudnn
