// The Python module torch_xpud._first_use: tells when a program first names the device "xpud".
//
// PyTorch parses names of devices in a constructor of c10::Device, which knows registered names only, and a
// registered device is PyTorch's accelerator. Beside another accelerator the name is therefore registered
// when it is first parsed. For this, the entries of that constructor are replaced in the tables through which
// PyTorch's libraries call libc10 (ELF's global offset tables). No function of Python changes. A program that
// never names xpud pays for one comparison for each name that PyTorch parses.
#include <c10/core/Device.h>
#include <elf.h>
#include <link.h>
#include <pybind11/pybind11.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace xpud::shim {
namespace {

namespace py = pybind11;

constexpr std::string_view kConstructor =
    "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr std::string_view kName = "xpud";

// An entry of a table, and the memory that has to be made writable for changing it.
struct Entry {
  uintptr_t* address;
  bool is_read_only;
};

// The dynamic section of a loaded library, as far as calls of other libraries need it.
class Library {
 public:
  explicit Library(const dl_phdr_info& info) : base_(info.dlpi_addr) {
    for (const ElfW(Phdr) & header : std::vector(info.dlpi_phdr, info.dlpi_phdr + info.dlpi_phnum)) {
      if (header.p_type == PT_DYNAMIC) Read(reinterpret_cast<const ElfW(Dyn)*>(base_ + header.p_vaddr));
      if (header.p_type == PT_GNU_RELRO) {
        read_only_begin_ = base_ + header.p_vaddr;
        read_only_end_ = read_only_begin_ + header.p_memsz;
      }
    }
  }

  // Appends the entries through which this library calls `function`.
  void Find(std::string_view function, std::vector<Entry>& entries) const {
    if (symbols_ == nullptr || strings_ == nullptr) return;
    for (const Relocations& table : {calls_, data_}) {
      for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
        const ElfW(Rela) & relocation = table.first[i];
        if (!IsEntry(ELF64_R_TYPE(relocation.r_info))) continue;
        const ElfW(Sym) & symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
        if (function != strings_ + symbol.st_name) continue;
        const uintptr_t address = base_ + relocation.r_offset;
        entries.push_back(
            {reinterpret_cast<uintptr_t*>(address), address >= read_only_begin_ && address < read_only_end_});
      }
    }
  }

 private:
  struct Relocations {
    const ElfW(Rela) * first;
    size_t bytes;
  };

  static bool IsEntry(uint64_t type) {
#if defined(__x86_64__)
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
    return false;
#endif
  }

  // The loader of glibc has added the base to addresses, that of musl has not.
  template <class T>
  const T* At(uintptr_t address) const {
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  void Read(const ElfW(Dyn) * dynamic) {
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
      const uintptr_t value = dynamic->d_un.d_ptr;
      switch (dynamic->d_tag) {
        case DT_STRTAB:
          strings_ = At<char>(value);
          break;
        case DT_SYMTAB:
          symbols_ = At<ElfW(Sym)>(value);
          break;
        case DT_JMPREL:
          calls_.first = At<ElfW(Rela)>(value);
          break;
        case DT_PLTRELSZ:
          calls_.bytes = value;
          break;
        case DT_RELA:
          data_.first = At<ElfW(Rela)>(value);
          break;
        case DT_RELASZ:
          data_.bytes = value;
          break;
        default:
          break;
      }
    }
  }

  uintptr_t base_;
  uintptr_t read_only_begin_ = 0, read_only_end_ = 0;
  const char* strings_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  Relocations calls_ = {nullptr, 0}, data_ = {nullptr, 0};
};

std::vector<Entry> FindEntries() {
  std::vector<Entry> entries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        // PyTorch's libraries are libtorch_python.so, libtorch_cpu.so, libtorch_cuda.so and others.
        if (std::string_view(info->dlpi_name).find("/libtorch") == std::string_view::npos) return 0;
        Library(*info).Find(kConstructor, *static_cast<std::vector<Entry>*>(found));
        return 0;
      },
      &entries);
  return entries;
}

// Returns false if the memory cannot be made writable.
bool Replace(const Entry& entry, uintptr_t function) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  // An address on a page may be read by other threads meanwhile: the page stays readable.
  void* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry.address) & ~(page_size - 1));
  if (entry.is_read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref(*entry.address).store(function, std::memory_order_release);
  if (entry.is_read_only) (void)mprotect(page, page_size, PROT_READ);
  return true;
}

// What is called at the first use. Never destroyed, because the interpreter may end first.
py::object& Callback() {
  static auto* const callback = new py::object;
  return *callback;
}

std::atomic<bool> used = false;

bool NamesXpud(std::string_view name) {
  return name.starts_with(kName) && (name.size() == kName.size() || name[kName.size()] == ':');
}

void CallBack() {
  const py::gil_scoped_acquire gil;
  const py::object callback = Callback();
  try {
    callback();
  } catch (const py::error_already_set& error) {
    throw std::runtime_error(error.what());  // PyTorch makes it a RuntimeError
  }
}

// Stands for the constructor: constructs `device` from `name`.
void Construct(c10::Device* device, const std::string& name) {
  if (!used.load(std::memory_order_acquire) && NamesXpud(name)) CallBack();
  new (device) c10::Device(name);
}

}  // namespace

PYBIND11_MODULE(_first_use, m) {
  m.doc() = "Tells when a program first names the device \"xpud\".";
  m.def(
      "watch",
      [](py::object callback) {
        Callback() = std::move(callback);
        bool watched = false;
        for (const Entry& entry : FindEntries())
          watched |= Replace(entry, reinterpret_cast<uintptr_t>(&Construct));
        return watched;
      },
      "Has `callback()` called whenever PyTorch parses the name of an xpud device, until `unwatch()`. "
      "Returns False if this is "
      "impossible in this process.");
  m.def("unwatch", [] { used.store(true, std::memory_order_release); });
}

}  // namespace xpud::shim
