#include "tests/conformance/isolation/isolation_test.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace xpud::isolation {
namespace {

namespace fs = std::filesystem;

int64_t CountEntries(const std::string& directory) {
  std::error_code error;
  int64_t count = 0;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    ++count;
  return count;
}

int64_t CountChildren(const std::string& process) {
  int64_t count = 0;
  for (const auto& task : fs::directory_iterator(process + "/task")) {
    std::ifstream children(task.path() / "children");
    count += std::distance(std::istream_iterator<int>(children), {});
  }
  return count;
}

int64_t ResidentBytes(const std::string& process) {
  std::ifstream status(process + "/status");
  int64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> kib;
  }
  return kib << 10;
}

int64_t CountLines(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

int64_t CountIn(const std::string& text, const std::string& word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

Vitals Vitals::Of(const e2e::DaemonProcess& daemon) {
  const std::string process = "/proc/" + std::to_string(daemon.pid());
  Vitals vitals;
  std::string status;
  if (daemon.Ask("status -o json", status) == 0) vitals.sessions = CountIn(status, "\"client_name\"");
  vitals.memory_used = daemon.StatusOf("memory_used_bytes");
  vitals.resident_bytes = ResidentBytes(process);
  vitals.files = CountEntries(process + "/fd");
  vitals.threads = CountEntries(process + "/task");
  vitals.children = CountChildren(process);
  vitals.mappings = CountLines(process + "/maps");
  return vitals;
}

bool IsAlive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return std::getline(stat, text) && text[text.rfind(')') + 2] != 'Z';
}

bool IsRemote() { return std::getenv("XPUD_TEST_REMOTE") != nullptr; }

bool InFull() { return std::getenv("XPUD_TEST_FULL") != nullptr; }

Isolation::Isolation(const std::vector<std::string>& flags)
    : daemon_(flags), innocent_(daemon_.address()), before_(Vitals::Of(daemon_)) {
  before_ = Vitals::Of(daemon_);  // the control plane's own first call has left its traces
}

Isolation::~Isolation() {
  if (HasFailure()) std::printf("%s", daemon_.Log().c_str());
}

void Isolation::ExpectAsBefore(const Growth& growth) {
  innocent_.ExpectUnharmed();
  Vitals now;
  // The innocent client's own memory comes and goes, and gRPC's threads and connections with each question.
  constexpr int64_t kInnocentBytes = 4 * kMiB, kServiceFiles = 2, kServiceThreads = 2;
  const bool as_before = e2e::Within(std::chrono::seconds(20), [&] {
    now = Vitals::Of(daemon_);
    return now.sessions == before_.sessions && now.files <= before_.files + kServiceFiles &&
           now.threads <= before_.threads + kServiceThreads && now.children == before_.children &&
           now.memory_used <= before_.memory_used + kInnocentBytes &&
           now.mappings <= before_.mappings + growth.mappings &&
           now.resident_bytes <= before_.resident_bytes + growth.resident;
  });
  std::printf("[ vitals   ] resident %+.1f MiB, files %+d, threads %+d, mappings %+d\n",
              static_cast<double>(now.resident_bytes - before_.resident_bytes) / kMiB,
              static_cast<int>(now.files - before_.files), static_cast<int>(now.threads - before_.threads),
              static_cast<int>(now.mappings - before_.mappings));
  EXPECT_TRUE(as_before) << "sessions " << now.sessions << " (" << before_.sessions << "), files "
                         << now.files << " (" << before_.files << "), threads " << now.threads << " ("
                         << before_.threads << "), children " << now.children << " (" << before_.children
                         << "), device memory " << now.memory_used << " (" << before_.memory_used
                         << "), mappings " << now.mappings << " (" << before_.mappings << "), resident "
                         << now.resident_bytes << " (" << before_.resident_bytes << ")";
}

}  // namespace xpud::isolation
