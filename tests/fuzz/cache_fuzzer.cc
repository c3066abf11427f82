// Files of the kernel cache, and the machine code in them. The first byte selects the parser.
#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "drivers/cpu/elf_object.h"
#include "drivers/cuda/cubin.h"
#include "kernels/compiler/object_cache.h"
#include "proto/base/check.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/temporary_folder.h"

namespace xpud::fuzz {
namespace {

// A copy with exactly its size, so that ASan reports a read beyond the end.
class Exact {
 public:
  explicit Exact(std::string_view text) : bytes_(std::make_unique<char[]>(text.size())), size_(text.size()) {
    text.copy(bytes_.get(), size_);
  }
  std::string_view text() const { return {bytes_.get(), size_}; }

 private:
  const std::unique_ptr<char[]> bytes_;
  const size_t size_;
};

// Reads some bytes, including the first and the last.
void Read(const void* address, uint64_t bytes) {
  const auto* const from = static_cast<const volatile uint8_t*>(address);
  const uint64_t step = bytes / 4096 + 1;
  for (uint64_t i = 0; i < bytes; i += step) static_cast<void>(from[i]);
  if (bytes != 0) static_cast<void>(from[bytes - 1]);
}

// Loads kernels like the CPU driver, which reads argument sizes; does not run them.
void LoadObject(std::string_view bytes) {
  std::string error;
  const auto object = drivers::cpu::ElfObject::Load(Exact(bytes).text(), error);
  XPUD_CHECK((object == nullptr) == !error.empty());
  if (object == nullptr) return;
  for (const drivers::cpu::ElfSymbol& symbol : object->symbols()) {
    XPUD_CHECK(object->Find(symbol.name) != nullptr);
    Read(symbol.address, symbol.size);
  }
}

template <typename T>
T At(std::string_view bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// CUDA gets only the address, and reads what the headers describe.
void CheckCubin(std::string_view text) {
  const Exact exact(text);
  const std::string_view bytes = exact.text();
  if (!drivers::cuda::IsElf(bytes) || !drivers::cuda::CheckCubin(bytes).empty()) return;
  const auto header = At<Elf64_Ehdr>(bytes, 0);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = At<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS) Read(bytes.data() + section.sh_offset, section.sh_size);
  }
  Read(bytes.data() + header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize);
}

void CheckPtx(std::string_view text) {
  const Exact exact(text);
  if (drivers::cuda::CheckPtx(exact.text()).empty())
    XPUD_CHECK(exact.text().find(".version") != std::string_view::npos);
}

// One file in a folder of this process.
class CacheFile {
 public:
  CacheFile() {
    cache_ = *kernels::ObjectCache::Open(folder_.path());
    Save("code");
    path_ = std::filesystem::directory_iterator(folder_.path())->path();
  }

  void Save(const std::string& code) { XPUD_CHECK(cache_->Save(kIdentity, code).ok()); }
  absl::StatusOr<std::string> Load() { return cache_->Load(kIdentity); }
  void Write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string Contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  static constexpr char kIdentity[] = "identity";
  const TemporaryFolder folder_;
  std::unique_ptr<kernels::ObjectCache> cache_;
  std::filesystem::path path_;
};

CacheFile& File() {
  static CacheFile file;
  return file;
}

// Whatever the file contains, only saved objects may be loaded. The checksum is the only protection.
void LoadFile(std::string_view bytes) {
  File().Write(bytes);
  const auto loaded = File().Load();
  if (loaded.ok()) LoadObject(*loaded);
}

// A saved file with some changed bytes: three bytes of the input for each change, two for the offset and one
// for the value.
void LoadEdited(Bytes input) {
  constexpr size_t kCodeBytes = 100;
  const std::string code(kCodeBytes, 'c');
  File().Save(code);
  const std::string saved = File().Contents();
  std::string edited = saved;
  while (!input.empty()) {
    const size_t at = input.Take<uint16_t>();
    edited.resize(std::max(edited.size(), at % (2 * saved.size()) + 1));
    edited[at % (2 * saved.size())] = static_cast<char>(input.Take<uint8_t>());
  }
  File().Write(edited);
  const auto loaded = File().Load();
  XPUD_CHECK(loaded.ok() == (edited == saved));
  if (loaded.ok()) XPUD_CHECK(*loaded == code);
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  Bytes input(data, size);
  switch (input.Take<uint8_t>() % 5) {
    case 0:
      LoadObject(input.text());
      break;
    case 1:
      CheckCubin(input.text());
      break;
    case 2:
      CheckPtx(input.text());
      break;
    case 3:
      LoadFile(input.text());
      break;
    default:
      LoadEdited(input);
  }
  return 0;
}
