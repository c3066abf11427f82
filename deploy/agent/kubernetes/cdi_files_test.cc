#include "deploy/agent/kubernetes/cdi_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "deploy/agent/kubernetes/json.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_address.h"

namespace xpud::agent::kubernetes {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kUid[] = "0f6c0a3e-1111-2222-3333-444455556666";

CdiClaim Claim(const std::string& uid = kUid) {
  return {.uid = uid,
          .name_space = "team",
          .name = "embed",
          .pods = {"11111111-2222", "33333333-4444"},
          .door = "/run/xpud/doors/k8s-" + uid};
}

class Cdi : public ::testing::Test {
 protected:
  Cdi() {
    char pattern[] = "/tmp/xpud-cdi-XXXXXX";
    root_ = mkdtemp(pattern);
    folder_ = root_ + "/run/cdi";
  }
  ~Cdi() override { std::filesystem::remove_all(root_); }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.insert(entry.path().filename());
    return names;
  }
  std::string PathOf(const std::string& uid = kUid) const {
    return folder_ + "/xpud.dev-claim_" + uid + ".json";
  }
  std::string Text() const {
    std::ifstream file(PathOf());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string root_, folder_;
};

TEST_F(Cdi, AFileIsAsTheSpecificationWantsIt) {
  const CdiFiles files(folder_);
  ASSERT_TRUE(files.Write(Claim()).ok());
  EXPECT_EQ(Names(), std::set<std::string>{std::string("xpud.dev-claim_") + kUid + ".json"});
  const Json file = *ParseJson(Text());
  EXPECT_EQ(file["cdiVersion"], "0.6.0");
  EXPECT_EQ(file["kind"], "xpud.dev/claim");
  ASSERT_EQ(file["devices"].size(), 1U);
  EXPECT_EQ(file["devices"][0]["name"], kUid);
  const Json& mount = file["devices"][0]["containerEdits"]["mounts"][0];
  EXPECT_EQ(mount["hostPath"], std::string("/run/xpud/doors/k8s-") + kUid);
  EXPECT_EQ(mount["containerPath"], "/run/xpud");
  EXPECT_EQ(mount["options"], Json({"bind", "ro", "nosuid", "nodev", "noexec"}));
  struct stat status{};
  ASSERT_EQ(stat(PathOf().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
  EXPECT_EQ(CdiFiles::IdOf(kUid), std::string("xpud.dev/claim=") + kUid);
}

TEST_F(Cdi, FilesSayWhatTheyAreFor) {
  const CdiFiles files(folder_);
  CdiClaim second = Claim("b");
  second.pods.clear();
  ASSERT_TRUE(files.Write(second).ok());
  ASSERT_TRUE(files.Write(Claim("a")).ok());
  const auto listing = files.List();
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_THAT(listing->claims, ElementsAre(Claim("a"), second));
  EXPECT_THAT(listing->unreadable, IsEmpty());
}

TEST_F(Cdi, AFileIsReplacedAsAWhole) {
  const CdiFiles files(folder_);
  ASSERT_TRUE(files.Write(Claim()).ok());
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) EXPECT_TRUE(ReadCdiText(Text()).ok());
  });
  CdiClaim claim = Claim();
  for (int i = 0; i < 300; ++i) {
    claim.door = "/doors/" + std::string(1 + i % 100, 'x');
    ASSERT_TRUE(files.Write(claim).ok());
  }
  done = true;
  reader.join();
  EXPECT_EQ(ReadCdiText(Text())->door, claim.door);
}

TEST_F(Cdi, RemovingIsIdempotent) {
  const CdiFiles files(folder_);
  ASSERT_TRUE(files.Open().ok());
  ASSERT_TRUE(files.Write(Claim()).ok());
  EXPECT_TRUE(files.Remove(kUid).ok());
  EXPECT_TRUE(files.Remove(kUid).ok());
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_FALSE(files.Remove("../x").ok());
}

TEST_F(Cdi, OneUnreadableFileNeverHidesTheOthers) {
  const CdiFiles files(folder_);
  ASSERT_TRUE(files.Write(Claim("good")).ok());
  std::ofstream(PathOf("half")) << CdiText(Claim("half")).substr(0, 100);
  std::ofstream(PathOf("other")) << CdiText(Claim("good"));
  std::ofstream(PathOf("Not-a-uid")) << CdiText(Claim("good"));
  std::ofstream(PathOf("large")) << std::string(100'000, ' ');
  std::ofstream(PathOf("older"))
      << R"({"cdiVersion":"0.5.0","kind":"xpud.dev/claim","devices":[{"name":"older"}]})";
  std::ofstream(folder_ + "/nvidia.com-gpu.json") << "{}";
  ASSERT_EQ(mkfifo(PathOf("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/etc/passwd", PathOf("link"));
  std::filesystem::create_directory(PathOf("folder"));
  const auto listing = files.List();
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_THAT(listing->claims, ElementsAre(Claim("good")));
  std::set<std::string> uids;
  for (const auto& unreadable : listing->unreadable) {
    EXPECT_FALSE(unreadable.reason.empty());
    uids.insert(unreadable.uid);
  }
  EXPECT_EQ(uids, (std::set<std::string>{"", "folder", "half", "large", "link", "older", "other", "pipe"}));
}

TEST_F(Cdi, UnfinishedFilesAreRemovedAtTheStart) {
  const CdiFiles files(folder_);
  ASSERT_TRUE(files.Write(Claim()).ok());
  std::ofstream(folder_ + "/xpud.dev-claim_a.json.unfinished") << "{";
  EXPECT_TRUE(files.List()->unreadable.empty()) << "it is being written";
  std::ofstream(folder_ + "/.other") << "{";
  ASSERT_TRUE(files.Open().ok());
  EXPECT_EQ(Names(), (std::set<std::string>{".other", std::string("xpud.dev-claim_") + kUid + ".json"}));
}

TEST_F(Cdi, AMissingFolderIsCreated) {
  const CdiFiles files(folder_);
  EXPECT_THAT(files.List()->claims, IsEmpty());
  ASSERT_TRUE(files.Write(Claim()).ok());
  struct stat status{};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0755U);
  std::filesystem::remove_all(root_ + "/run");
  ASSERT_TRUE(files.Write(Claim()).ok());
  EXPECT_TRUE(CdiFiles(root_ + "/other/cdi/").Write(Claim()).ok());
}

TEST_F(Cdi, HostileClaimsAreNotWritten) {
  const CdiFiles files(folder_);
  for (const char* uid : {"", "../x", "A", "a/b", "a.b"}) EXPECT_FALSE(files.Write(Claim(uid)).ok()) << uid;
  CdiClaim claim = Claim();
  claim.door = "relative";
  EXPECT_FALSE(files.Write(claim).ok());
  claim = Claim();
  claim.name = "a\nb";
  EXPECT_FALSE(files.Write(claim).ok());
  claim = Claim();
  claim.pods = {"a,b"};
  EXPECT_FALSE(files.Write(claim).ok());
}

// Runs `body` in a child with a mount namespace of its own, because mounts of this process would stay.
// Returns whether it returned true.
bool InMountNamespace(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const bool ready =
        unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    _exit(ready && body() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(Cdi, AFullDiskLeavesTheOldFile) {
  std::filesystem::create_directories(folder_);
  EXPECT_TRUE(InMountNamespace([&] {
    if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=16k") != 0) return false;
    const CdiFiles files(folder_);
    if (!files.Write(Claim()).ok()) return false;
    std::ofstream(folder_ + "/fill") << std::string(1 << 20, 'x');
    CdiClaim changed = Claim();
    changed.name = "changed";
    const absl::Status status = files.Write(changed);
    return absl::IsResourceExhausted(status) && ReadCdiText(Text())->name == "embed" && Names().size() == 2;
  }));
}

TEST_F(Cdi, AReadOnlyFolderIsNamed) {
  std::filesystem::create_directories(folder_);
  EXPECT_TRUE(InMountNamespace([&] {
    if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, "") != 0) return false;
    const CdiFiles files(folder_);
    if (!files.Write(Claim()).ok()) return false;
    if (mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return false;
    const absl::Status written = files.Write(Claim()), opened = files.Open(), removed = files.Remove(kUid);
    return written.message().find("Read-only file system") != std::string::npos && !opened.ok() &&
           !removed.ok() && files.List()->claims.size() == 1;
  }));
}

// Why the mount may be read-only: a client can connect, and nobody in the container can remove the socket.
TEST_F(Cdi, ASocketInAReadOnlyMountCanBeUsedButNotRemoved) {
  std::filesystem::create_directories(folder_);
  std::filesystem::create_directories(root_ + "/in");
  const UniqueFd listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = *UnixAddress(folder_ + "/xpud.sock");
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  EXPECT_TRUE(InMountNamespace([&] {
    const std::string inside = root_ + "/in";
    constexpr unsigned long kOptions = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount(folder_.c_str(), inside.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, inside.c_str(), nullptr, kOptions, nullptr) != 0)
      return false;
    const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un there = *UnixAddress(inside + "/xpud.sock");
    return connect(client.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)) == 0 &&
           unlink((inside + "/xpud.sock").c_str()) != 0 && errno == EROFS;
  }));
}

}  // namespace
}  // namespace xpud::agent::kubernetes
