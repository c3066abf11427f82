// The Python module torch_xpud._C: the shim's functions for torch_xpud/__init__.py, and the Python calls that
// the shim needs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include "sdk/torch/csrc/call/loop_kernel.h"
#include "sdk/torch/csrc/engines/product.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/ops/derivatives.h"
#include "sdk/torch/csrc/runtime/allocator.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/generator.h"
#include "sdk/torch/csrc/runtime/memory_history.h"
#include "sdk/torch/csrc/runtime/profiler.h"
#include "sdk/torch/csrc/runtime/runtime.h"
#include "sdk/torch/csrc/table/registration.h"

namespace xpud::shim {
namespace {

namespace py = pybind11;

// The exception that a signal handler raised while a call waited.
std::unique_ptr<python_error>& PendingSignal() {
  thread_local std::unique_ptr<python_error> pending;
  return pending;
}

bool IsPythonUp() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

void* ReleaseGil() { return IsPythonUp() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void AcquireGil(void* token) { PyEval_RestoreThread(static_cast<PyThreadState*>(token)); }

absl::Status CheckSignals() {
  if (!IsPythonUp()) return absl::OkStatus();
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return absl::OkStatus();
  PendingSignal() = std::make_unique<python_error>();
  PendingSignal()->persist();
  return absl::CancelledError("interrupted by a signal");
}

void RethrowSignal() {
  if (PendingSignal() == nullptr) return;
  const std::unique_ptr<python_error> pending = std::move(PendingSignal());
  throw python_error(std::move(*pending));
}

// torch.xpud.InvalidIndexError: an IndexError and a RuntimeError. Never destroyed.
PyObject* InvalidIndexError() {
  static PyObject* const type = PyErr_NewExceptionWithDoc(
      "torch.xpud.InvalidIndexError",
      "A device found an index out of range. PyTorch's operators raise IndexError or RuntimeError for it; "
      "this is both.",
      py::make_tuple(py::handle(PyExc_IndexError), py::handle(PyExc_RuntimeError)).ptr(), nullptr);
  return type;
}

void ThrowInvalidIndex(const std::string& message) {
  if (!IsPythonUp()) return;
  const py::gil_scoped_acquire gil;
  PyErr_SetString(InvalidIndexError(), message.c_str());
  python_error error;
  error.persist();
  throw python_error(std::move(error));
}

// torch_xpud.client_name.client_name. Never destroyed, because the interpreter may end first.
py::object& ClientNameFunction() {
  static auto* function = new py::object;
  return *function;
}

std::string AskClientName() {
  if (!IsPythonUp()) return "";
  py::gil_scoped_acquire gil;
  if (!ClientNameFunction()) return "";
  try {
    return py::cast<std::string>(ClientNameFunction()());
  } catch (const py::error_already_set&) {
    return "";  // connect without a name
  }
}

py::dict DeviceProperties(int index) {
  const DeviceInfo& info = Runtime::Get().device(index);
  py::dict properties;
  properties["name"] = info.name;
  properties["kind"] = info.kind;
  properties["vendor"] = info.vendor;
  properties["total_memory"] = info.total_memory;
  properties["compute_units"] = info.compute_units;
  properties["pci_address"] = info.pci_address;
  return properties;
}

std::string Address() {
  Session* session = Runtime::Get().session();
  return session == nullptr ? std::string() : session->address();
}

std::vector<std::string> ProductActivations(int device) {
  std::vector<std::string> names;
  for (const NamedActivation& each : ActivationsOfProducts(device)) names.emplace_back(each.name);
  return names;
}

// Returns the memory in use and the events of the history, as lists of dicts.
py::dict MemorySnapshot() {
  const std::vector<MemoryInUse> in_use = FindMemoryInUse();
  const std::vector<MemoryHistory::Event> events = MemoryHistory::Get().Events();
  std::vector<MemoryHistory::Stack> stacks;
  for (const MemoryInUse& block : in_use) stacks.push_back(MemoryHistory::Get().StackOf(block.address));
  for (const MemoryHistory::Event& event : events) stacks.push_back(event.stack);
  std::vector<torch::CapturedTraceback*> known;
  for (const MemoryHistory::Stack& stack : stacks)
    if (stack != nullptr) known.push_back(stack.get());
  const torch::SymbolizedTracebacks symbolized = torch::symbolize(known);
  std::vector<py::dict> frames;
  for (const auto& frame : symbolized.all_frames) {
    frames.emplace_back();
    frames.back()["filename"] = frame.filename;
    frames.back()["line"] = frame.lineno;
    frames.back()["name"] = frame.funcname;
  }
  size_t next_stack = 0, next_known = 0;
  const auto next_frames = [&] {
    py::list list;
    if (stacks[next_stack++] != nullptr)
      for (const uint64_t frame : symbolized.tracebacks[next_known++]) list.append(frames[frame]);
    return list;
  };
  py::list blocks, history;
  for (const MemoryInUse& block : in_use) {
    py::dict item;
    item["address"] = block.address;
    item["bytes"] = block.bytes;
    item["device"] = block.device;
    item["frames"] = next_frames();
    blocks.append(item);
  }
  constexpr const char* kActions[] = {"alloc", "free", "oom"};
  for (const MemoryHistory::Event& event : events) {
    py::dict item;
    item["action"] = kActions[static_cast<size_t>(event.action)];
    item["address"] = event.address;
    item["bytes"] = event.bytes;
    item["device"] = event.device;
    item["stream"] = event.stream;
    item["time_us"] = event.time_us;
    item["frames"] = next_frames();
    history.append(item);
  }
  py::dict snapshot;
  snapshot["blocks"] = blocks;
  snapshot["events"] = history;
  return snapshot;
}

// The operands of a call of a loop kernel, in the order of the list. Refers to the tensors in it.
using Arguments = c10::SmallVector<LoopKernel::Argument, 16>;

ops::Number NumberOf(py::handle object, ops::DType type) {
  if (ops::IsFloating(type)) {
    const double real = PyFloat_AsDouble(object.ptr());
    if (real == -1 && PyErr_Occurred()) throw python_error();
    return ops::Number::Real(real);
  }
  const long long integer = PyLong_AsLongLong(object.ptr());
  if (integer == -1 && PyErr_Occurred()) throw python_error();
  return ops::Number::Integer(integer);
}

Arguments ArgumentsOf(const LoopKernel& kernel, const py::list& list) {
  Arguments arguments;
  size_t scalars = 0;
  for (const py::handle item : list) {
    if (THPVariable_Check(item.ptr())) {
      arguments.push_back({.tensor = &THPVariable_Unpack(item.ptr())});
    } else {
      arguments.push_back({.number = NumberOf(item, kernel.ScalarType(scalars++))});
    }
  }
  return arguments;
}

void CallLoopKernel(LoopKernel& kernel, const py::list& outputs, const py::list& inputs,
                    const py::list& sizes) {
  c10::SmallVector<int64_t, 8> numbers;
  for (const py::handle size : sizes) numbers.push_back(NumberOf(size, ops::DType::kInt64).integer);
  const Arguments written = ArgumentsOf(kernel, outputs), read = ArgumentsOf(kernel, inputs);
  kernel.Call(written, read, numbers);
}

void PrepareLoopKernel(LoopKernel& kernel, int device, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& elements) {
  kernel.Prepare(device, sizes, elements);
}

std::unique_ptr<LoopKernel> MakeLoopKernel(const py::bytes& bytes, std::string name,
                                           const std::vector<py::object>& scalar_types) {
  std::vector<at::ScalarType> types;
  for (const py::object& type : scalar_types) {
    TORCH_CHECK_TYPE(THPDtype_Check(type.ptr()), "scalar_types must be torch.dtypes");
    types.push_back(reinterpret_cast<THPDtype*>(type.ptr())->scalar_type);
  }
  return std::make_unique<LoopKernel>(std::string(bytes), std::move(name), types);
}

// A ticket as Python carries it from process to process.
using TicketFields = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint32_t>;
Ticket TicketOf(const TicketFields& fields) {
  const auto& [low, high, memory, bytes, device] = fields;
  return {{low, high}, memory, bytes, device};
}

TicketFields ShareStorageObject(const py::object& storage) {
  const Ticket ticket = ShareStorage(*torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
  return {ticket.key[0], ticket.key[1], ticket.memory, ticket.bytes, ticket.device};
}

py::object AttachStorageObject(const TicketFields& ticket, uint64_t bytes) {
  return py::reinterpret_steal<py::object>(torch::createPyObject(AttachStorage(TicketOf(ticket), bytes)));
}

bool UsesDevices() { return Runtime::IsConnected() && !Runtime::IsInBadFork() && !Runtime::Get().is_null(); }

// A range on the current stream. Returns its device and stream; nothing if this process uses no device.
std::optional<std::pair<int, c10::StreamId>> PushRange(const std::string& name) {
  if (!UsesDevices()) return std::nullopt;
  const int device = Runtime::CurrentDevice();
  const c10::StreamId stream = Runtime::CurrentStream(device);
  ThrowIfError(Runtime::Get().queue(device, stream).PushRange(name));
  return std::pair(device, stream);
}

void PopRange(int device, c10::StreamId stream) {
  if (UsesDevices()) ThrowIfError(Runtime::Get().queue(device, stream).PopRange());
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  SetPythonHooks({.release_gil = ReleaseGil,
                  .acquire_gil = AcquireGil,
                  .check_signals = CheckSignals,
                  .rethrow_signal = RethrowSignal,
                  .throw_index_error = ThrowInvalidIndex,
                  .client_name = AskClientName});
  SetSessionHooks({.check_settings = CheckFallbackSetting, .fall_back_without = FallBackWithout});
  RegisterOpTable();
  RegisterDerivatives();
  m.attr("InvalidIndexError") = py::handle(InvalidIndexError());
  m.def("is_connected", &Runtime::IsConnected);
  m.def("is_in_bad_fork", &Runtime::IsInBadFork);
  m.def("connect", torch::wrap_pybind_function_no_gil([] { Runtime::Get(); }));
  m.def("device_properties", torch::wrap_pybind_function(DeviceProperties));
  m.def("set_client_name_function", [](py::object function) { ClientNameFunction() = std::move(function); });
  m.def("start_memory_history",
        [](bool events, bool alloc_stacks, bool free_stacks, bool native_frames, size_t max_events) {
          MemoryHistory::Get().Start({events, alloc_stacks, free_stacks, native_frames, max_events});
        });
  m.def("stop_memory_history", [] { MemoryHistory::Get().Stop(); });
  m.def("clear_memory_history", [] { MemoryHistory::Get().Clear(); });
  m.def("set_memory_limit", torch::wrap_pybind_function(SetMemoryLimit));
  m.def("memory_snapshot", torch::wrap_pybind_function(MemorySnapshot));
  m.attr("records_activities") = RecordsActivities();
  m.def("report_unread_error", torch::wrap_pybind_function_no_gil([] {
          if (UsesDevices()) Runtime::Get().session()->ReportUnreadError();
        }));
  m.def("set_nice", torch::wrap_pybind_function_no_gil([](int nice) {
          Session* const session = Runtime::Get().session();
          if (session == nullptr) return;
          const absl::Status set = session->SetNice(nice);
          TORCH_CHECK_VALUE(!absl::IsInvalidArgument(set), set.message());
          ThrowIfError(set);
        }));
  m.def("share_storage", torch::wrap_pybind_function(ShareStorageObject));
  m.def("attach_storage", torch::wrap_pybind_function(AttachStorageObject));
  m.def("return_ticket",
        torch::wrap_pybind_function([](const TicketFields& ticket) { ReturnTicket(TicketOf(ticket)); }));
  m.def("product_activations", torch::wrap_pybind_function(ProductActivations));
  m.def("loop_kernels_supported", torch::wrap_pybind_function(KnowsLoopKernels));
  py::class_<LoopKernel>(
      m, "LoopKernel",
      "A fused kernel that the program describes as data (proto/loops/codec.h), called with "
      "tensors of one device.")
      .def(py::init(torch::wrap_pybind_function(MakeLoopKernel)), py::arg("kernel"), py::arg("name"),
           py::arg("scalar_types") = std::vector<py::object>())
      .def("__call__", torch::wrap_pybind_function(CallLoopKernel), py::arg("outputs"), py::arg("inputs"),
           py::arg("sizes"))
      .def("prepare", torch::wrap_pybind_function(PrepareLoopKernel), py::arg("device"), py::arg("sizes"),
           py::arg("elements"))
      .def_property_readonly("name", &LoopKernel::name);
  m.def("push_range", torch::wrap_pybind_function(PushRange));
  m.def("pop_range", torch::wrap_pybind_function(PopRange));
  m.def("fallback_counts", &FallbackCounts);
  m.def("address", torch::wrap_pybind_function(Address));
  m.def("default_generator", torch::wrap_pybind_function([](int index) {
          return DefaultGenerator(static_cast<c10::DeviceIndex>(index));
        }));
  m.def("manual_seed_all", torch::wrap_pybind_function([](uint64_t seed) {
          for (int i = 0; i < kMaxDevices; ++i) {
            at::Generator generator = DefaultGenerator(static_cast<c10::DeviceIndex>(i));
            std::lock_guard<std::mutex> lock(generator.mutex());
            generator.set_current_seed(seed);
          }
        }));
}

}  // namespace xpud::shim
