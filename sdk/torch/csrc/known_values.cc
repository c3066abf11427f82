#include "sdk/torch/csrc/known_values.h"

#include <ATen/ATen.h>
#include <ATen/core/DimVector.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstdlib>
#include <exception>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "proto/base/mutex.h"

namespace xpud::shim {
namespace known {

constinit std::array<std::atomic<uint16_t>, kRemainders> buffers_of_remainder{};

}  // namespace known
namespace {

constexpr size_t kMostBytes = 16 << 20;  // of all that is known; the oldest goes first
constexpr size_t kMostEntries = 4096;
static_assert(kMostEntries < UINT16_MAX, "all of them may have one remainder");
// From an upload to what is computed from it: `n = n + 1` is not followed for ever.
constexpr int kMostSteps = 8;

std::atomic<size_t> bytes_known{0};

bool IsWanted() {
  static const bool wanted = [] {
    const char* value = std::getenv("XPUD_KNOWN_VALUES");
    return value == nullptr || std::string_view(value) != "0";
  }();
  return wanted;
}

// Offset 0, without gaps, and nothing beyond it.
bool IsWholeStorage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes() &&
         tensor.is_non_overlapping_and_dense();
}

class Values;

// How a tensor lies in its storage.
struct Layout {
  explicit Layout(const at::Tensor& tensor)
      : type(tensor.scalar_type()),
        sizes(tensor.sizes()),
        strides(tensor.strides()),
        offset(tensor.storage_offset()) {}
  bool IsOf(const at::Tensor& tensor) const {
    return tensor.scalar_type() == type && tensor.sizes() == sizes && tensor.strides() == strides &&
           tensor.storage_offset() == offset;
  }

  at::ScalarType type;
  at::DimVector sizes, strides;
  int64_t offset;
};

// A tensor of ours whose storage's values are known.
struct View {
  std::shared_ptr<Values> values;
  Layout layout;

  at::Tensor Get() const;  // undefined where they could not be computed
};

struct Recipe {
  std::vector<View> inputs;
  HostCompute compute;
  Layout result;

  at::Tensor Compute() const {
    std::vector<at::Tensor> values;
    for (const View& input : inputs) {
      values.push_back(input.Get());
      if (!values.back().defined()) return {};
    }
    at::Tensor computed = compute(std::move(values));
    if (result.IsOf(computed)) return computed;
    if (computed.scalar_type() != result.type || computed.sizes() != result.sizes) return {};
    return at::empty_strided(result.sizes, result.strides, computed.options()).copy_(computed);
  }
};

// The values of one storage, computed when they are first asked for; nobody writes them after that.
class Values {
 public:
  explicit Values(at::Tensor host) : bytes_(host.nbytes()), host_(std::move(host)) { bytes_known += bytes_; }
  Values(std::shared_ptr<const Recipe> recipe, size_t bytes, int steps)
      : bytes_(bytes), steps_(steps), recipe_(std::move(recipe)) {
    bytes_known += bytes_;
  }
  ~Values() { bytes_known -= bytes_; }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  int steps() const { return steps_; }

  // Undefined where they could not be computed. Computes without the lock: ATen may want the interpreter's.
  // Two threads may then compute the same.
  at::Tensor Get() {
    std::shared_ptr<const Recipe> recipe;
    {
      MutexLock lock(mutex_);
      if (recipe_ == nullptr) return host_;
      recipe = recipe_;
    }
    at::Tensor computed;
    try {
      computed = recipe->Compute();
    } catch (const std::exception&) {
      computed.reset();  // a division by zero, say: the device's answer counts
    }
    MutexLock lock(mutex_);
    host_ = computed;
    recipe_ = nullptr;
    return computed;
  }

 private:
  const size_t bytes_;
  const int steps_ = 0;
  Mutex mutex_;
  std::shared_ptr<const Recipe> recipe_ ABSL_GUARDED_BY(mutex_);  // until it was followed
  at::Tensor host_ ABSL_GUARDED_BY(mutex_);
};

at::Tensor View::Get() const {
  at::Tensor host = values->Get();
  if (!host.defined() || layout.IsOf(host)) return host;
  if (host.scalar_type() == layout.type) return host.as_strided(layout.sizes, layout.strides, layout.offset);
  return at::empty({0}, host.options().dtype(layout.type))
      .set_(host.storage(), layout.offset, layout.sizes, layout.strides);
}

// What is known, by buffer.
class Index {
 public:
  std::shared_ptr<Values> Find(BufferHandle buffer) {
    MutexLock lock(mutex_);
    const auto found = by_id_.find(buffer.id);
    return found != by_id_.end() && found->second->buffer == buffer ? found->second->values : nullptr;
  }

  void Add(BufferHandle buffer, std::shared_ptr<Values> values) {
    std::list<Entry> gone;
    MutexLock lock(mutex_);
    Take(buffer.id, gone);
    by_id_[buffer.id] = entries_.insert(entries_.end(), {buffer, std::move(values)});
    ++known::buffers_of_remainder[buffer.id % known::kRemainders];
    while (entries_.size() > kMostEntries) Take(entries_.front().buffer.id, gone);
    for (; bytes_known > kMostBytes && !entries_.empty(); gone.clear())
      Take(entries_.front().buffer.id, gone);
  }

  void Erase(BufferHandle buffer) {
    std::list<Entry> gone;  // ends after the lock
    MutexLock lock(mutex_);
    Take(buffer.id, gone);
  }

 private:
  struct Entry {
    BufferHandle buffer;
    std::shared_ptr<Values> values;
  };

  void Take(uint32_t id, std::list<Entry>& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    gone.splice(gone.end(), entries_, found->second);
    by_id_.erase(found);
    --known::buffers_of_remainder[id % known::kRemainders];
  }

  Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  std::unordered_map<uint32_t, std::list<Entry>::iterator> by_id_ ABSL_GUARDED_BY(mutex_);
};

Index& TheIndex() {
  static Index* index = new Index;
  return *index;
}

std::shared_ptr<Values> Find(const at::Tensor& tensor) {
  return MayBeKnown(tensor) ? TheIndex().Find(PlaceOf(tensor).buffer) : nullptr;
}

}  // namespace

void known::Erase(BufferHandle buffer) { TheIndex().Erase(buffer); }

at::Tensor KnownValues(const at::Tensor& tensor) {
  std::shared_ptr<Values> values = Find(tensor);
  if (values == nullptr || tensor.is_neg()) return {};
  const at::AutoDispatchBelowADInplaceOrView guard;
  return View(std::move(values), Layout(tensor)).Get();
}

void NoteUpload(const at::Tensor& source, const at::Tensor& target) {
  if (!IsKnowable(target) || !IsWholeStorage(target) || !IsWanted()) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  TheIndex().Add(PlaceOf(target).buffer, std::make_shared<Values>(source.clone()));
}

void NoteResult(const at::Tensor& result, const std::vector<at::Tensor>& inputs, HostCompute compute) {
  if (!IsKnowable(result) || !IsWholeStorage(result)) return;
  std::vector<View> views;
  int steps = 0;
  for (const at::Tensor& input : inputs) {
    std::shared_ptr<Values> values = Find(input);
    if (values == nullptr) return;
    steps = std::max(steps, values->steps() + 1);
    views.emplace_back(std::move(values), Layout(input));
  }
  if (steps > kMostSteps) return;
  auto recipe = std::make_shared<const Recipe>(std::move(views), std::move(compute), Layout(result));
  TheIndex().Add(PlaceOf(result).buffer, std::make_shared<Values>(std::move(recipe), result.nbytes(), steps));
}

void NoteResult(const at::Tensor& result, const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  std::vector<at::Tensor> inputs;
  std::vector<size_t> places;  // where they stood
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor()) continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (tensor.device().is_cpu()) {
      // One that stands for a Python number takes part in type promotion as such, and is nobody else's.
      if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) arguments[i] = tensor.clone();
      continue;
    }
    inputs.push_back(tensor);
    places.push_back(i);
    arguments[i] = {};
  }
  NoteResult(
      result, inputs,
      [op, places = std::move(places), arguments = std::move(arguments)](std::vector<at::Tensor> values) {
        torch::jit::Stack stack = arguments;
        for (size_t i = 0; i < places.size(); ++i) stack[places[i]] = std::move(values[i]);
        op.callBoxed(stack);
        return stack.at(0).toTensor();
      });
}

}  // namespace xpud::shim
