#include "sdk/torch/csrc/fallback/host_call.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/runtime/generator.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IValue;

// ---- facts that schemas lack ----

// Arguments that an operator writes although its schema does not mark them.
struct HiddenWrite {
  std::string_view op;
  std::string_view argument;
};
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::native_batch_norm", "running_mean"},
    HiddenWrite{"aten::native_batch_norm", "running_var"},
    HiddenWrite{"aten::batch_norm_update_stats", "running_mean"},
    HiddenWrite{"aten::batch_norm_update_stats", "running_var"},
};

bool IsWritten(const c10::OperatorHandle& op, const c10::Argument& argument) {
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  return std::ranges::any_of(kHiddenWrites, [&](const HiddenWrite& write) {
    return write.op == op.operator_name().name && write.argument == argument.name();
  });
}

// Operators that accept CPU tensors of any shape together with device tensors: lengths, sizes of nested
// tensors, indices, an optimizer's step counts.
bool MayMixDevices(const c10::OperatorHandle& op) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "aten::_ctc_loss",  "aten::_ctc_loss_backward", "aten::index",         "aten::index_put",
      "aten::index_put_", "aten::_index_put_impl_",   "aten::_unsafe_index", "aten::_unsafe_index_put"};
  const std::string_view name = op.operator_name().name;
  return std::ranges::find(kNames, name) != kNames.end() || name.starts_with("aten::_nested_") ||
         name.starts_with("aten::_fused_");
}

// Reads memory outside the tensor that it is given.
bool ReadsWholeStorage(const c10::OperatorHandle& op) {
  return op.operator_name().name.starts_with("aten::as_strided");
}

// ---- tensors ----

struct Range {
  int64_t begin;  // bytes from the start of the storage
  int64_t end;
};

// Returns the bytes from a tensor's first element to its last.
Range BytesOf(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.itemsize());
  const int64_t begin = tensor.storage_offset() * size;
  if (tensor.numel() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {begin, begin + (last + 1) * size};
}

bool IsDeviceTensor(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

const c10::StorageImpl* StorageOf(const Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Returns a tensor on `storage` with the dtype, shape, strides and pending bits of `like`, which has another
// storage.
Tensor ViewLike(const c10::Storage& storage, const Tensor& like, int64_t offset) {
  Tensor view = at::empty({0}, like.options().device(storage.device()));
  view.set_(storage, offset, like.sizes(), like.strides());
  view._set_conj(like.is_conj());
  view._set_neg(like.is_neg());
  return view;
}

// Returns a range of a storage as a tensor of bytes.
Tensor BytesView(const c10::Storage& storage, Range range) {
  Tensor bytes = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  return bytes.set_(storage, range.begin, {range.end - range.begin}, {1});
}

// A part of a storage, and its copy on the host once that exists.
struct Area {
  c10::Storage device;
  Range range;   // of the device's bytes; the host's storage holds only these
  Tensor first;  // a tensor inside it
  bool shared;   // it contains other tensors too
  c10::Storage host;
};

// The tensors of one call and their copies on the host.
class Mirrors {
 public:
  // REQUIRES: all device tensors of the call are announced before the first is copied. Tensors that overlap
  // in memory share an area. `whole`: the operator reads the whole storage.
  void Announce(const Tensor& tensor, bool whole) {
    if (!IsDeviceTensor(tensor)) return;
    TORCH_CHECK_NOT_IMPLEMENTED(IsOnDevice(tensor), "xpud has no ", tensor.layout(),
                                " tensors: use a dense one, or a CPU tensor");
    constexpr int64_t kAlignment = 16;  // of any element type
    Area area{tensor.storage(), BytesOf(tensor), tensor, whole, {}};
    if (whole) area.range = {0, static_cast<int64_t>(tensor.storage().nbytes())};
    area.range.begin = area.range.begin / kAlignment * kAlignment;
    std::erase_if(areas_, [&](const Area& other) {
      const bool overlaps = other.device.unsafeGetStorageImpl() == StorageOf(tensor) &&
                            other.range.begin < area.range.end && area.range.begin < other.range.end;
      if (!overlaps) return false;
      area.shared |= other.shared || !other.first.is_same(tensor);
      area.range = {std::min(other.range.begin, area.range.begin), std::max(other.range.end, area.range.end)};
      return true;
    });
    areas_.push_back(std::move(area));
  }

  // Returns the host copy of an announced tensor; other tensors unchanged.
  Tensor ToHost(const Tensor& tensor) {
    if (!IsDeviceTensor(tensor)) return tensor;
    for (const Pair& pair : pairs_) {
      if (pair.device.is_same(tensor)) return pair.host;
    }
    const Tensor host = Copied(tensor);
    return pairs_.emplace_back(Pair{tensor, host, host.sizes().vec(), host.strides().vec()}).host;
  }

  // Copies the host's result back to `tensor`. Resizes it first if the operator resized the copy.
  void WriteBack(const Tensor& tensor) {
    const auto pair = std::ranges::find_if(pairs_, [&](const Pair& p) { return p.device.is_same(tensor); });
    if (pair == pairs_.end()) return;
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) return WriteBytesBack(*pair);
    if (pair->host.sizes() != pair->sizes || pair->host.strides() != pair->strides)
      Reshape(tensor, pair->host);
    tensor.copy_(pair->host);
  }

  // Returns the device tensor for a result.
  Tensor ToDevice(const Tensor& host, c10::Device device) {
    if (!host.defined() || !host.device().is_cpu()) return host;
    TORCH_CHECK_NOT_IMPLEMENTED(host.layout() == at::kStrided && !host.is_quantized(), "xpud has no ",
                                host.is_quantized() ? "quantized" : c10::str(host.layout()),
                                " tensors: compute this one on the CPU");
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(host)) return pair.device;
    }
    if (const Area* area = AreaOfHost(host)) {
      return ViewLike(area->device, host,
                      host.storage_offset() + area->range.begin / static_cast<int64_t>(host.itemsize()));
    }
    return Uploaded(host, device);
  }

 private:
  struct Pair {
    Tensor device;
    Tensor host;
    std::vector<int64_t> sizes;  // the host copy's before the call
    std::vector<int64_t> strides;
  };

  // If elements are far apart, they are gathered on the device first, unless another tensor shares their
  // memory.
  static bool IsScattered(const Area& area) {
    constexpr int64_t kFewBytes = 4096, kFactor = 4;
    const int64_t extent = area.range.end - area.range.begin;
    return !area.shared && extent > kFewBytes && extent > kFactor * static_cast<int64_t>(area.first.nbytes());
  }

  // Returns the area that holds an announced tensor.
  Area& AreaOf(const Tensor& tensor) {
    const Range range = BytesOf(tensor);
    const auto area = std::ranges::find_if(areas_, [&](const Area& a) {
      return a.device.unsafeGetStorageImpl() == StorageOf(tensor) && a.range.begin <= range.begin &&
             range.end <= a.range.end;
    });
    TORCH_INTERNAL_ASSERT(area != areas_.end());
    return *area;
  }

  // Returns the area whose copy holds a host tensor, or nullptr.
  const Area* AreaOfHost(const Tensor& host) const {
    for (const Area& area : areas_) {
      if (area.host && area.host.unsafeGetStorageImpl() == StorageOf(host)) return &area;
    }
    return nullptr;
  }

  Tensor Copied(const Tensor& tensor) {
    Area& area = AreaOf(tensor);
    if (IsScattered(area)) return Gathered(tensor);
    if (!area.host) area.host = BytesView(area.device, area.range).cpu().storage();
    return ViewLike(area.host, tensor,
                    tensor.storage_offset() - area.range.begin / static_cast<int64_t>(tensor.itemsize()));
  }

  static Tensor Gathered(const Tensor& tensor) {
    Tensor dense = at::empty_like(tensor);  // keeps the order of dimensions of `tensor`
    dense._set_conj(tensor.is_conj());
    dense._set_neg(tensor.is_neg());
    CopyOnDevice(tensor, dense);
    Tensor host = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(at::kCPU));
    host._set_conj(tensor.is_conj());
    host._set_neg(tensor.is_neg());
    return host.copy_(dense);
  }

  // Gives `device` the new shape and strides of its copy.
  static void Reshape(const Tensor& device, const Tensor& host) {
    const Range range = BytesOf(host);
    device.resize_({(range.end - range.begin) / static_cast<int64_t>(host.itemsize())});
    device.as_strided_(host.sizes(), host.strides());
  }

  // For a tensor whose elements share memory: copy_ refuses to write it.
  void WriteBytesBack(const Pair& pair) {
    const Area* const area = AreaOfHost(pair.host);
    TORCH_INTERNAL_ASSERT(area != nullptr);
    const Range there = BytesOf(pair.device), here = BytesOf(pair.host);
    BytesView(area->device, there).copy_(BytesView(area->host, here));
  }

  static Tensor Uploaded(const Tensor& host, c10::Device device) {
    const auto options = host.options().device(device);
    if (host.is_non_overlapping_and_dense() || host.numel() == 0) {
      Tensor made = at::empty_strided(host.sizes(), host.strides(), options);
      made._set_conj(host.is_conj());
      made._set_neg(host.is_neg());
      return made.copy_(host);
    }
    const Tensor bytes = BytesView(host.storage(), {0, static_cast<int64_t>(host.storage().nbytes())});
    return ViewLike(bytes.to(device).storage(), host, host.storage_offset());
  }

  std::vector<Area> areas_;
  std::vector<Pair> pairs_;
};

// ---- arguments ----

// Calls `visit(Tensor)` for each tensor in an argument.
template <class Visit>
void ForEachTensor(const IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

// Returns the value with each tensor replaced by `change(Tensor)`.
template <class Change>
IValue WithTensors(const IValue& value, const Change& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor.has_value() ? std::optional(change(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

// Checks that the tensors of a call are on one device, and returns that device.
class CallDevice {
 public:
  explicit CallDevice(const c10::OperatorHandle& op) : mixed_(MayMixDevices(op)) {}

  void Add(const Tensor& tensor, bool written) {
    if (!tensor.defined()) return;
    const bool travels = tensor.device().is_cpu() && !written && (mixed_ || tensor.dim() == 0);
    if (travels) return;
    if (!device_.has_value()) device_ = tensor.device();
    CheckSameDevice(*device_, tensor.device());
  }
  void Choose(c10::Device device) { chosen_ = device; }
  // A factory's device argument decides; without one, the tensors do.
  c10::Device Get() const {
    const c10::Device device = chosen_.value_or(device_.value_or(c10::Device(kDeviceType)));
    if (device.has_index() || device.is_cpu()) return device;
    return c10::Device(device.type(), static_cast<c10::DeviceIndex>(Runtime::CurrentDevice()));
  }

 private:
  bool mixed_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> chosen_;
};

// Returns a CPU generator, seeded from the device's generator.
at::Generator HostGenerator(const std::optional<at::Generator>& generator, c10::Device device) {
  const PhiloxState state = NextPhilox(generator, device.index(), 1);
  return at::detail::createCPUGenerator(static_cast<uint64_t>(state.seed) * 0x9E3779B97F4A7C15u +
                                        static_cast<uint64_t>(state.offset));
}

bool TakesGenerator(const c10::Argument& argument) {
  const c10::Type& type = *argument.type();
  if (type.kind() == c10::TypeKind::GeneratorType) return true;
  return type.kind() == c10::TypeKind::OptionalType &&
         type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

IValue ReplaceGenerator(const IValue& value, c10::Device device) {
  if (value.isNone()) return HostGenerator(std::nullopt, device);
  const at::Generator generator = value.toGenerator();
  return generator.defined() && generator.device().is_cpu() ? value
                                                            : IValue(HostGenerator(generator, device));
}

}  // namespace

bool MayWriteOverlap(const c10::OperatorHandle& op) {
  static constexpr std::string_view kNames[] = {"aten::fill_", "aten::masked_fill_", "aten::tril_",
                                                "aten::triu_", "aten::baddbmm_"};
  return std::ranges::find(kNames, op.operator_name().name) != std::end(kNames);
}

void CallOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                              "xpud has no kernel for ", toString(op.operator_name()),
                              ", and PyTorch's CPU has none either");
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<IValue> given = torch::jit::last(*stack, count).vec();
  torch::jit::drop(*stack, count);

  Mirrors mirrors;
  CallDevice device(op);
  for (size_t i = 0; i < count; ++i) {
    const bool written = IsWritten(op, schema.arguments()[i]);
    ForEachTensor(given[i], [&](const Tensor& tensor) {
      device.Add(tensor, written);
      if (written && tensor.defined() && !MayWriteOverlap(op)) at::assert_no_internal_overlap(tensor);
      mirrors.Announce(tensor, ReadsWholeStorage(op));
    });
    if (given[i].isDevice()) device.Choose(given[i].toDevice());
  }

  for (size_t i = 0; i < count; ++i) {
    if (given[i].isDevice())
      stack->emplace_back(c10::Device(c10::kCPU));
    else if (TakesGenerator(schema.arguments()[i]))
      stack->push_back(ReplaceGenerator(given[i], device.Get()));
    else
      stack->push_back(WithTensors(given[i], [&](const Tensor& tensor) { return mirrors.ToHost(tensor); }));
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);

  for (size_t i = 0; i < count; ++i) {
    if (!IsWritten(op, schema.arguments()[i])) continue;
    ForEachTensor(given[i], [&](const Tensor& tensor) { mirrors.WriteBack(tensor); });
  }
  const c10::Device target = device.Get();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    (*stack)[i] =
        WithTensors((*stack)[i], [&](const Tensor& tensor) { return mirrors.ToDevice(tensor, target); });
  }
}

}  // namespace xpud::shim
