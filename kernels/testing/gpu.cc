#include "kernels/testing/gpu.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

bool Installed(const char* tool) {
  return std::system(absl::StrCat("command -v ", tool, " > /dev/null").c_str()) == 0;
}

// Returns the verdict of the target's own assembler or validator, if it is installed. Does not use the OpenCL
// profile, because f16 is an extension there.
absl::Status Validate(Target target, const std::string& module) {
  const bool ptx = target == Target::kNvptx;
  const char* const tool = ptx ? "ptxas" : "spirv-val";
  if (!Installed(tool)) return absl::OkStatus();
  FILE* const validator =
      ::popen(ptx ? "ptxas -arch=sm_90 -o /dev/null /dev/stdin" : "spirv-val --target-env spv1.2 -", "w");
  if (validator == nullptr) return absl::InternalError(absl::StrCat(tool, " does not start"));
  const bool written = std::fwrite(module.data(), 1, module.size(), validator) == module.size();
  return ::pclose(validator) == 0 && written ? absl::OkStatus()
                                             : absl::InternalError(absl::StrCat(tool, " refuses the module"));
}

absl::Status CheckLaunch(Target target, const Launch& launch) {
  const ModuleImage& module = *launch.kernel().module;
  const std::string& entry = launch.kernel().entry;
  const bool ptx = target == Target::kNvptx;
  constexpr char kSpirvMagic[] = "\x03\x02\x23\x07";
  const bool right = ptx ? module.format == ModuleImage::Format::kPtx &&
                               module.bytes.find(".entry " + entry) != std::string::npos
                         : module.format == ModuleImage::Format::kSpirv &&
                               module.bytes.starts_with(kSpirvMagic) &&
                               module.bytes.find(entry) != std::string::npos;
  if (!right)
    return absl::InternalError(absl::StrCat(entry, " is not in its module for ", ptx ? "NVPTX" : "SPIR-V"));
  return Validate(target, module.bytes);
}

}  // namespace

absl::Status CompileForGpus(const OpCall& call) {
  for (const Target target : {Target::kNvptx, Target::kSpirv}) {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<KernelLibrary> library,
        KernelLibrary::Create({.target = target, .cache_directory = {}, .workers = 1, .on_ready = {}}));
    const auto workspace = [](size_t) -> absl::StatusOr<void*> { return nullptr; };  // planned, never run
    LaunchList launches;
    for (;;) {
      ASSIGN_OR_RETURN(const Readiness readiness, library->Plan(call, workspace, launches));
      if (readiness == Readiness::kReady) break;
      library->WaitForCompiles();
    }
    if (launches.size() == 0) return absl::InternalError("nothing was launched");
    for (size_t i = 0; i < launches.size(); ++i) RETURN_IF_ERROR(CheckLaunch(target, launches[i]));
  }
  return absl::OkStatus();
}

}  // namespace xpud::kernels
