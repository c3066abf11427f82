#include "sdk/torch/csrc/host_call.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/copy.h"
#include "sdk/torch/csrc/generator.h"
#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IValue;

// ---- what schemas do not say ----

// Arguments that an operator writes though its schema does not mark them.
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

// Operators that take CPU tensors of any shape beside device tensors: lengths, sizes of nested tensors,
// indices, an optimizer's step counts.
bool MayMixDevices(const c10::OperatorHandle& op) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "aten::_ctc_loss",  "aten::_ctc_loss_backward", "aten::index",         "aten::index_put",
      "aten::index_put_", "aten::_index_put_impl_",   "aten::_unsafe_index", "aten::_unsafe_index_put"};
  const std::string_view name = op.operator_name().name;
  return std::ranges::find(kNames, name) != kNames.end() || name.starts_with("aten::_nested_") ||
         name.starts_with("aten::_fused_");
}

// Reads memory around the tensor it is given.
bool ReadsWholeStorage(const c10::OperatorHandle& op) {
  return op.operator_name().name.starts_with("aten::as_strided");
}

// ---- tensors ----

struct Range {
  int64_t begin;  // bytes from the storage's start
  int64_t end;
};

// The bytes between a tensor's first element and its last.
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

// A tensor over `storage` with the type, shape, strides and pending bits of `like`, which lies in another
// storage.
Tensor ViewLike(const c10::Storage& storage, const Tensor& like, int64_t offset) {
  Tensor view = at::empty({0}, like.options().device(storage.device()));
  view.set_(storage, offset, like.sizes(), like.strides());
  view._set_conj(like.is_conj());
  view._set_neg(like.is_neg());
  return view;
}

// A row of bytes in a storage.
Tensor BytesView(const c10::Storage& storage, Range range) {
  Tensor bytes = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  return bytes.set_(storage, range.begin, {range.end - range.begin}, {1});
}

// A storage, or a part of one, on both sides.
struct Mirror {
  c10::Storage device;
  c10::Storage host;
  int64_t begin = 0;  // the host's first byte is this byte of the device's
};

// The tensors of one call.
class Mirrors {
 public:
  // All device tensors of the call are announced before the first is copied.
  void Announce(const Tensor& tensor, bool whole) {
    if (!IsDeviceTensor(tensor)) return;
    TORCH_CHECK_NOT_IMPLEMENTED(IsOnDevice(tensor), "xpud has no ", tensor.layout(),
                                " tensors: use a dense one, or a CPU tensor");
    Range range = BytesOf(tensor);
    if (whole) range = {0, static_cast<int64_t>(tensor.storage().nbytes())};
    for (Wanted& wanted : wanted_) {
      if (wanted.storage != StorageOf(tensor)) continue;
      wanted.shared |= !wanted.first.is_same(tensor) || whole;
      wanted.range = {std::min(wanted.range.begin, range.begin), std::max(wanted.range.end, range.end)};
      return;
    }
    wanted_.push_back({StorageOf(tensor), tensor, range, whole});
  }

  // The host's copy of an announced tensor; other tensors as they are.
  Tensor ToHost(const Tensor& tensor) {
    if (!IsDeviceTensor(tensor)) return tensor;
    for (const Pair& pair : pairs_) {
      if (pair.device.is_same(tensor)) return pair.host;
    }
    const Tensor host = Copied(tensor);
    return pairs_.emplace_back(Pair{tensor, host, host.sizes().vec(), host.strides().vec()}).host;
  }

  // Copies what the host has written to `tensor` back. Resizes it first where the operator has resized the
  // copy.
  void WriteBack(const Tensor& tensor) {
    const auto pair = std::ranges::find_if(pairs_, [&](const Pair& p) { return p.device.is_same(tensor); });
    if (pair == pairs_.end()) return;
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) return WriteBytesBack(*pair);
    if (pair->host.sizes() != pair->sizes || pair->host.strides() != pair->strides)
      Reshape(tensor, pair->host);
    tensor.copy_(pair->host);
  }

  // The device's tensor for a result.
  Tensor ToDevice(const Tensor& host, c10::Device device) {
    if (!host.defined() || !host.device().is_cpu()) return host;
    TORCH_CHECK_NOT_IMPLEMENTED(host.layout() == at::kStrided && !host.is_quantized(), "xpud has no ",
                                host.is_quantized() ? "quantized" : c10::str(host.layout()),
                                " tensors: compute this one on the CPU");
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(host)) return pair.device;
    }
    for (const Mirror& mirror : mirrors_) {
      if (mirror.host.unsafeGetStorageImpl() != StorageOf(host)) continue;
      return ViewLike(mirror.device, host,
                      host.storage_offset() + mirror.begin / static_cast<int64_t>(host.itemsize()));
    }
    return Uploaded(host, device);
  }

 private:
  struct Wanted {
    const c10::StorageImpl* storage;
    Tensor first;
    Range range;
    bool shared;  // several tensors of the call lie in it
  };
  struct Pair {
    Tensor device;
    Tensor host;
    std::vector<int64_t> sizes;  // the host's before the call
    std::vector<int64_t> strides;
  };

  // Elements far apart are gathered on the device first, unless another tensor shares their memory.
  static bool IsScattered(const Tensor& tensor, Range range) {
    constexpr int64_t kFewBytes = 4096, kFactor = 4;
    const int64_t extent = range.end - range.begin;
    return extent > kFewBytes && extent > kFactor * static_cast<int64_t>(tensor.nbytes());
  }

  Tensor Copied(const Tensor& tensor) {
    const auto wanted = std::ranges::find(wanted_, StorageOf(tensor), &Wanted::storage);
    TORCH_INTERNAL_ASSERT(wanted != wanted_.end());
    if (!wanted->shared && IsScattered(tensor, wanted->range)) return Gathered(tensor);
    for (const Mirror& mirror : mirrors_) {
      if (mirror.device.unsafeGetStorageImpl() == StorageOf(tensor)) return InMirror(mirror, tensor);
    }
    constexpr int64_t kAlignment = 16;  // of every element type
    const Range range{wanted->range.begin / kAlignment * kAlignment, wanted->range.end};
    const Tensor bytes = BytesView(tensor.storage(), range).cpu();
    return InMirror(mirrors_.emplace_back(Mirror{tensor.storage(), bytes.storage(), range.begin}), tensor);
  }

  static Tensor InMirror(const Mirror& mirror, const Tensor& tensor) {
    return ViewLike(mirror.host, tensor,
                    tensor.storage_offset() - mirror.begin / static_cast<int64_t>(tensor.itemsize()));
  }

  static Tensor Gathered(const Tensor& tensor) {
    Tensor dense = at::empty_like(tensor);  // with the order of dimensions that `tensor` has
    dense._set_conj(tensor.is_conj());
    dense._set_neg(tensor.is_neg());
    CopyOnDevice(tensor, dense);
    Tensor host = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(at::kCPU));
    host._set_conj(tensor.is_conj());
    host._set_neg(tensor.is_neg());
    return host.copy_(dense);
  }

  // Gives a tensor that the operator resized the shape and strides that its copy has now.
  static void Reshape(const Tensor& device, const Tensor& host) {
    const Range range = BytesOf(host);
    device.resize_({(range.end - range.begin) / static_cast<int64_t>(host.itemsize())});
    device.as_strided_(host.sizes(), host.strides());
  }

  // For a tensor whose elements share memory, which copy_ refuses to write.
  void WriteBytesBack(const Pair& pair) {
    const auto mirror = std::ranges::find_if(
        mirrors_, [&](const Mirror& m) { return m.host.unsafeGetStorageImpl() == StorageOf(pair.host); });
    TORCH_INTERNAL_ASSERT(mirror != mirrors_.end());
    const Range there = BytesOf(pair.device), here = BytesOf(pair.host);
    BytesView(mirror->device, there).copy_(BytesView(mirror->host, here));
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

  std::vector<Wanted> wanted_;
  std::vector<Mirror> mirrors_;
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

// The value with each tensor replaced by `change(Tensor)`.
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

// Checks that the tensors of a call lie on one device, and finds it.
class CallDevice {
 public:
  explicit CallDevice(const c10::OperatorHandle& op) : mixed_(MayMixDevices(op)) {}

  void Add(const Tensor& tensor, bool written) {
    if (!tensor.defined()) return;
    const bool travels = tensor.device().is_cpu() && !written && (mixed_ || tensor.dim() == 0);
    if (travels) return;
    if (!device_.has_value()) device_ = tensor.device();
    TORCH_CHECK(*device_ == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *device_,
                " and ", tensor.device(), "!");
  }
  void Choose(c10::Device device) { chosen_ = device; }
  // A factory's argument decides, then the tensors.
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

// A CPU generator seeded by what the device's generator gives next.
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

void CallOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU),
                              "xpud has no kernel for ", toString(op.operator_name()),
                              ", and PyTorch's CPU has none that could stand in");
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
