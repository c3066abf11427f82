// Checks GPUs: on the bus, their nodes in /dev, and their libraries.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/checks.h"

namespace xpud::xpuctl {
namespace {

std::vector<std::string> Entries(const char* folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    names.push_back(entry.path().filename().string());
  return names;
}

std::string FirstWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

int NvidiaOnTheBus() {
  static constexpr char kPci[] = "/sys/bus/pci/devices";
  const std::vector<std::string> functions = Entries(kPci);
  return static_cast<int>(std::ranges::count_if(functions, [](const std::string& name) {
    const std::string folder = absl::StrCat(kPci, "/", name);
    return FirstWord(folder + "/vendor") == "0x10de" && FirstWord(folder + "/class").starts_with("0x03");
  }));
}

bool MayUse(const std::string& node) { return access(node.c_str(), R_OK | W_OK) == 0; }

NvidiaFacts Nvidia() {
  const char* named = std::getenv("XPUD_CUDA_LIBRARY");
  NvidiaFacts facts = {.on_the_bus = NvidiaOnTheBus(),
                       .control = access("/dev/nvidiactl", F_OK) == 0,
                       .uvm = access("/dev/nvidia-uvm", F_OK) == 0,
                       .permitted = true,
                       .library = named == nullptr ? "libcuda.so.1" : named};
  constexpr std::string_view kPrefix = "nvidia";
  for (const std::string& name : Entries("/dev")) {
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) continue;
    const bool numbered = std::all_of(name.begin() + kPrefix.size(), name.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!numbered) continue;
    ++facts.nodes;
    facts.permitted &= MayUse("/dev/" + name);
  }
  facts.permitted &= !facts.control || MayUse("/dev/nvidiactl");
  facts.permitted &= !facts.uvm || MayUse("/dev/nvidia-uvm");
  if (void* library = dlopen(facts.library.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    dlclose(library);
  } else {
    const char* error = dlerror();
    facts.load_error = error == nullptr ? "unknown" : error;
  }
  return facts;
}

Check RenderNodes() {
  Check check = {"dri", Health::kOk, "", ""};
  for (const std::string& name : Entries("/dev/dri")) {
    if (!name.starts_with("renderD")) continue;
    absl::StrAppend(&check.found, check.found.empty() ? "" : ", ", "/dev/dri/", name);
    if (MayUse("/dev/dri/" + name)) continue;
    check.health = Health::kWarn;
    check.remedy = "join the nodes' group (sudo adduser $USER render) to use these GPUs";
  }
  if (check.found.empty()) check.found = "no render nodes in /dev/dri, so no Intel GPU";
  return check;
}

}  // namespace

void CheckGpus(Checks& checks) {
  checks.push_back(JudgeNvidia(Nvidia()));
  checks.push_back(RenderNodes());
}

}  // namespace xpud::xpuctl
