// The kernel cache with files that were changed, and on a full disk. Only code that was compiled from the op
// table is run, and no result depends on the cache.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

namespace fs = std::filesystem;

using Path = fs::path;

std::vector<Path> FilesIn(const Path& directory) {
  std::vector<Path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

std::string Read(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void Write(const Path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Uses a few kernels of each kind.
void UseKernels(const std::string& socket) {
  HostileSession session(socket, "user");
  PutOperands(session);
  for (const char* op :
       {"add.Tensor", "neg", "sum", "_softmax", "embedding", "native_layer_norm", "amax", "exp"}) {
    session.Put(RightCall(ops::RowOf(op)).bytes());
    const absl::Status status = session.Settle();
    EXPECT_TRUE(status.ok()) << op << ": " << status;
  }
}

class Cache : public ::testing::Test {
 protected:
  Cache() {
    Innocent innocent(daemon_.socket());
    UseKernels(daemon_.socket());
  }
  Path cache() const { return daemon_.directory() + "/cache"; }
  // Starts another daemon on the damaged cache: every result must be correct.
  void ExpectServed(const std::string& what) {
    SCOPED_TRACE(what);
    daemon_.Restart();
    Innocent innocent(daemon_.socket());
    UseKernels(daemon_.socket());
    innocent.ExpectUnharmed();
  }
  e2e::DaemonProcess daemon_{{}, e2e::KernelFiles::kOwn};
};

TEST_F(Cache, FilesThatWereChangedAreNotRun) {
  std::mt19937_64 random(20);
  const std::vector<std::pair<const char*, std::function<std::string(std::string)>>> changes = {
      {"empty", [](const std::string&) { return std::string(); }},
      {"cut in half", [](const std::string& file) { return file.substr(0, file.size() / 2); }},
      {"one byte short", [](const std::string& file) { return file.substr(0, file.size() - 1); }},
      {"longer", [](const std::string& file) { return file + std::string(100, 'x'); }},
      {"a bit turned",
       [&](std::string file) {
         file[random() % file.size()] ^= static_cast<char>(1 << random() % 8);
         return file;
       }},
      {"a bit turned at the end",
       [](std::string file) {
         file.back() ^= 1;
         return file;
       }},
      {"a bit turned at the beginning",
       [](std::string file) {
         file.front() ^= 1;
         return file;
       }},
      {"zeros", [](const std::string& file) { return std::string(file.size(), '\0'); }},
      {"noise", [&](std::string file) {
         for (char& byte : file) byte = static_cast<char>(random());
         return file;
       }}};
  for (const auto& [what, change] : changes) {
    daemon_.Kill();
    const std::vector<Path> files = FilesIn(cache());
    ASSERT_GT(files.size(), 5u);
    for (const Path& path : files) Write(path, change(Read(path)));
    ExpectServed(what);
  }
}

// Each file holds another file's kernel.
TEST_F(Cache, FilesThatHaveChangedPlacesAreNotRun) {
  daemon_.Kill();
  const std::vector<Path> files = FilesIn(cache());
  ASSERT_GT(files.size(), 5u);
  std::vector<std::string> contents;
  for (const Path& path : files) contents.push_back(Read(path));
  for (size_t i = 0; i < files.size(); ++i) Write(files[i], contents[(i + 1) % files.size()]);
  ExpectServed("rotated");
}

TEST_F(Cache, FilesThatAreNoFilesAreNotRun) {
  daemon_.Kill();
  const std::vector<Path> files = FilesIn(cache());
  for (size_t i = 0; i < files.size(); ++i) {
    fs::remove(files[i]);
    if (i % 3 == 0) fs::create_directory(files[i]);
    if (i % 3 == 1) fs::create_symlink(files[i], files[i]);
    if (i % 3 == 2) ASSERT_EQ(mkfifo(files[i].c_str(), 0600), 0);
  }
  ExpectServed("directories, loops and fifos");
}

TEST_F(Cache, ThatVanishesUnderTheDaemonIsNotMissed) {
  Innocent innocent(daemon_.socket());
  fs::remove_all(cache());
  HostileSession session(daemon_.socket());
  PutOperands(session);
  session.Put(RightCall(ops::RowOf("tanh")).bytes());
  EXPECT_TRUE(session.Settle().ok());
  innocent.ExpectUnharmed();
}

// A disk of its own without free space.
TEST_F(Cache, OnAFullDiskIsNotNeeded) {
  if (unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "only root can make a small disk";
  ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  daemon_.Kill();
  fs::remove_all(cache());
  fs::create_directory(cache());
  ASSERT_EQ(mount("tmpfs", cache().c_str(), "tmpfs", 0, "size=64k,mode=0700"), 0);
  Write(cache() / "filler", std::string(60 << 10, 'x'));
  for (std::ofstream more(cache() / "more", std::ios::binary); more;)
    more << std::string(4096, 'y') << std::flush;
  EXPECT_EQ(fs::space(cache()).available, 0u);
  ExpectServed("full");
  daemon_.Kill();
  EXPECT_EQ(umount(cache().c_str()), 0);
}

}  // namespace
}  // namespace xpud::isolation
