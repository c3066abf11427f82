// The disk cache: every kind of damage is a miss that a Save repairs, and many processes may write at once.
#include "kernels/compiler/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/dispatch/kernel_library.h"
#include "kernels/testing/device.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

namespace fs = std::filesystem;

class ObjectCacheTest : public ::testing::Test {
 protected:
  ObjectCacheTest() {
    directory_ =
        ::testing::TempDir() + absl::StrCat("xpud_cache_", ::getpid(), "_",
                                            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(directory_);
  }
  ~ObjectCacheTest() override { fs::remove_all(directory_); }

  std::unique_ptr<ObjectCache> Open() { return *ObjectCache::Open(directory_); }
  fs::path OnlyFile() const {
    fs::path found;
    int count = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) found = entry.path(), ++count;
    EXPECT_EQ(count, 1);
    return found;
  }

  std::string directory_;
};

TEST_F(ObjectCacheTest, GivesBackWhatWasSaved) {
  const auto cache = Open();
  EXPECT_EQ(cache->Load("x").status().code(), absl::StatusCode::kNotFound);
  const std::string code("\0\1code\0", 7);
  EXPECT_TRUE(cache->Save("x", code).ok());
  EXPECT_EQ(*cache->Load("x"), code);
  EXPECT_FALSE(cache->Load("y").ok());
  EXPECT_EQ(*Open()->Load("x"), code);
  struct stat info;
  ASSERT_EQ(::stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat(OnlyFile().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ObjectCacheTest, EveryTruncationAndEveryFlippedByteIsAMiss) {
  const auto cache = Open();
  const std::string identity = "identity", code(100, 'c');
  EXPECT_TRUE(cache->Save(identity, code).ok());
  const fs::path file = OnlyFile();
  std::ifstream in(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (size_t length = 0; length < whole.size(); ++length) {
    write(whole.substr(0, length));
    ASSERT_FALSE(cache->Load(identity).ok()) << "first " << length << " bytes";
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(damaged);
    ASSERT_FALSE(cache->Load(identity).ok()) << "byte " << at;
  }
  write(whole + "x");
  EXPECT_FALSE(cache->Load(identity).ok());
  EXPECT_TRUE(cache->Save(identity, code).ok());
  EXPECT_EQ(*cache->Load(identity), code);
}

TEST_F(ObjectCacheTest, AnotherIdentityUnderTheSameNameIsAMiss) {
  const auto cache = Open();
  EXPECT_TRUE(cache->Save("one", "code of one").ok());
  const fs::path one = OnlyFile();
  EXPECT_TRUE(cache->Save("two", "code of two").ok());
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.path() != one) fs::rename(one, entry.path());
  }
  EXPECT_FALSE(cache->Load("two").ok());
}

TEST_F(ObjectCacheTest, LinksFifosAndDirectoriesAreNotOpened) {
  const auto cache = Open();
  EXPECT_TRUE(cache->Save("x", "code").ok());
  const fs::path file = OnlyFile();
  const std::string elsewhere = directory_ + "_elsewhere";
  fs::copy_file(file, elsewhere, fs::copy_options::overwrite_existing);
  fs::remove(file);
  fs::create_symlink(elsewhere, file);
  EXPECT_FALSE(cache->Load("x").ok());
  EXPECT_TRUE(cache->Save("x", "new").ok());  // replaces the link, not what it names
  EXPECT_EQ(*cache->Load("x"), "new");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(cache->Load("x").ok());
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_FALSE(cache->Load("x").ok());
  fs::remove(elsewhere);
}

// Files of a sixteenth of the limit.
class FullObjectCache : public ObjectCacheTest {
 protected:
  static constexpr uint64_t kLimit = 1 << 20;
  static constexpr uint64_t kCode = kLimit / 16 - 4096;

  static void Save(ObjectCache& cache, const std::string& kind, int count) {
    for (int i = 0; i < count; ++i)
      EXPECT_TRUE(cache.Save(absl::StrCat(kind, i), std::string(kCode, 'c')).ok());
  }
  static void Release(ObjectCache& cache, const std::string& kind, int count) {
    for (int i = 0; i < count; ++i) cache.Release(absl::StrCat(kind, i));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than the clock of files takes
  }
  int CountOf(const std::string& kind, int count) {
    int found = 0;
    for (int i = 0; i < count; ++i) found += Open()->Load(absl::StrCat(kind, i)).ok() ? 1 : 0;
    return found;
  }
  uint64_t Bytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) bytes += entry.file_size();
    return bytes;
  }
};

TEST_F(FullObjectCache, WhatWasNotUsedForLongestMakesRoom) {
  const auto cache = *ObjectCache::Open(directory_, kLimit);
  std::ofstream(directory_ + "/of another") << "which stays";
  Save(*cache, "old", 10);
  Release(*cache, "old", 10);
  EXPECT_TRUE(cache->Load("old3").ok());
  cache->Release("old3");
  Save(*cache, "new", 8);
  EXPECT_EQ(CountOf("new", 8), 8);
  EXPECT_TRUE(Open()->Load("old3").ok());
  EXPECT_LT(CountOf("old", 10), 10);
  EXPECT_GT(CountOf("old", 10), 2) << "more went than had to";
  EXPECT_LE(Bytes(), kLimit + kLimit / 16);
  EXPECT_TRUE(fs::exists(directory_ + "/of another"));
}

TEST_F(FullObjectCache, WhatIsInUseStays) {
  const auto cache = *ObjectCache::Open(directory_, kLimit);
  Save(*cache, "saved", 4);
  EXPECT_TRUE(Open()->Save("loaded", "code").ok());
  EXPECT_TRUE(cache->Load("loaded").ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int round = 0; round < 4; ++round) {
    Save(*cache, absl::StrCat("more", round, "-"), 8);
    Release(*cache, absl::StrCat("more", round, "-"), 8);
  }
  EXPECT_EQ(CountOf("saved", 4), 4);
  EXPECT_TRUE(Open()->Load("loaded").ok());
  EXPECT_EQ(CountOf("more0-", 8), 0);
  EXPECT_LE(Bytes(), kLimit + kLimit / 16);
}

// A process that finds more there than may be, and what a dead one was writing.
TEST_F(FullObjectCache, IsCutBackByTheNextWhoWrites) {
  const auto without_limit = Open();
  Save(*without_limit, "old", 30);
  std::ofstream(directory_ + "/.1.2.tmp") << std::string(kCode, 'x');
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE((*ObjectCache::Open(directory_, kLimit))->Save("new", "code").ok());
  EXPECT_LE(Bytes(), kLimit);
  EXPECT_TRUE(Open()->Load("new").ok());
}

TEST_F(ObjectCacheTest, AFileThatOthersMayWriteIsAMissAndIsReplaced) {
  EXPECT_TRUE(Open()->Save("identity", "code").ok());
  const fs::path file = OnlyFile();
  for (const mode_t mode : {0620U, 0602U}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_FALSE(Open()->Load("identity").ok()) << mode;
    EXPECT_TRUE(Open()->Save("identity", "code").ok());
    EXPECT_TRUE(Open()->Load("identity").ok());
  }
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(Open()->Load("identity").ok());
}

TEST_F(ObjectCacheTest, FoldersThatAreMissingAreMade) {
  const std::string nested = directory_ + "/cache/xpud";
  ASSERT_TRUE(ObjectCache::Open(nested).ok());
  EXPECT_EQ(fs::status(nested).permissions(), fs::perms::owner_all);
}

TEST_F(ObjectCacheTest, UntrustedDirectoriesAreRefused) {
  EXPECT_EQ(ObjectCache::Open("relative").status().code(), absl::StatusCode::kInvalidArgument);
  fs::create_directory(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 0777), 0);
  EXPECT_EQ(ObjectCache::Open(directory_).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(::chmod(directory_.c_str(), 0700), 0);
  EXPECT_TRUE(ObjectCache::Open(directory_).ok());
  const std::string link = directory_ + "_link";
  fs::remove(link);
  fs::create_symlink(directory_, link);
  EXPECT_EQ(ObjectCache::Open(link).status().code(), absl::StatusCode::kPermissionDenied);
  fs::remove(link);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(::chown(directory_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(ObjectCache::Open(directory_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ObjectCacheTest, ConcurrentProcessesNeverSeeHalfAFile) {
  Open();
  const auto code_of = [](int version) { return std::string(200'000, static_cast<char>('a' + version)); };
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto cache = Open();
      int wrong = 0;
      for (int round = 0; round < 40; ++round) {
        EXPECT_TRUE(cache->Save("shared", code_of(child)).ok());
        const absl::StatusOr<std::string> got = cache->Load("shared");
        if (!got.ok() || got->size() != 200'000 || got->find_first_not_of((*got)[0]) != std::string::npos)
          ++wrong;
      }
      ::_exit(wrong == 0 ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  OnlyFile();  // no temporary is left
}

TEST_F(ObjectCacheTest, LibraryRecompilesWhatIsDamagedAndReplacesIt) {
  KernelLibrary::Options options;
  options.cache_directory = directory_;
  KernelCounters counters;
  const auto run = [&] {
    const auto library = *KernelLibrary::Create(options);
    TestDevice device;
    TestTensor a(ops::DType::kFloat32, {100}), out(ops::DType::kFloat32, {100});
    for (int64_t i = 0; i < 100; ++i) a.Set(i, i);
    const Operand input = a.operand(), output = out.operand();
    ASSERT_TRUE(device
                    .Run(*library, {.row = &ops::RowOf("neg"),
                                    .compute = ops::DType::kFloat32,
                                    .outputs = {&output, 1},
                                    .inputs = {&input, 1},
                                    .attributes = {}})
                    .ok());
    EXPECT_EQ(out.At(42), -42);
    counters = library->counters();
    EXPECT_GE(counters.memory_hits, 1u);
    EXPECT_EQ(counters.failed, 0u);
  };
  run();
  EXPECT_EQ(counters.compiled, 1u);
  EXPECT_EQ(counters.disk_hits, 0u);
  EXPECT_GT(counters.compile_ns, 0u);
  const fs::path file = OnlyFile();
  const auto size = fs::file_size(file);
  const auto written = fs::last_write_time(file);
  run();
  EXPECT_EQ(fs::last_write_time(file), written) << "the second run compiled again";
  EXPECT_EQ(counters.compiled, 0u);
  EXPECT_EQ(counters.disk_hits, 1u);
  EXPECT_EQ(counters.compile_ns, 0u);
  fs::resize_file(file, size / 2);
  run();
  EXPECT_EQ(fs::file_size(file), size);
  EXPECT_EQ(counters.compiled, 1u);
  EXPECT_EQ(counters.disk_hits, 0u);
}

}  // namespace
}  // namespace xpud::kernels
