#include "kernels/compiler/backend.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/math_bitcode.h"
#include "kernels/compiler/soft_double.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/Scalarizer.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

extern "C" {
void LLVMInitializeSPIRVTarget();
void LLVMInitializeSPIRVTargetInfo();
void LLVMInitializeSPIRVTargetMC();
void LLVMInitializeSPIRVAsmPrinter();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace xpud::kernels {
namespace {

void InitialiseTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    LLVMInitializeSPIRVTargetInfo();
    LLVMInitializeSPIRVTarget();
    LLVMInitializeSPIRVTargetMC();
    LLVMInitializeSPIRVAsmPrinter();
  });
}

const std::string& HostFeatures() {
  static const std::string* const features = [] {
    std::set<std::string> sorted;
    for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
      sorted.insert((feature.second ? "+" : "-") + feature.first().str());
    }
    auto* joined = new std::string;
    for (const std::string& f : sorted) absl::StrAppend(joined, joined->empty() ? "" : ",", f);
    return joined;
  }();
  return *features;
}

struct Machine {
  std::string cpu, features;
};

// Returns a PTX version that supports the processor and what kernels use of it. LLVM does not choose it. No
// version up to 8.4 needs a newer driver than drivers/cuda does.
std::string PtxVersionOf(const CodeTarget& target) {
  const int number = target.ProcessorNumber();
  return number < 90 ? "+ptx78" : number < 100 ? "+ptx81" : number < 110 ? "+ptx86" : "+ptx87";
}

Machine MachineOf(const CodeTarget& target) {
  if (target.target == Target::kHost) return {llvm::sys::getHostCPUName().str(), HostFeatures()};
  if (target.target == Target::kNvptx) return {target.processor, PtxVersionOf(target)};
  return {"", ""};
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> CreateMachine(const CodeTarget& target,
                                                                   const llvm::Module& module) {
  InitialiseTargets();
  std::string error;
  const llvm::Target* const found = llvm::TargetRegistry::lookupTarget(module.getTargetTriple(), error);
  if (found == nullptr) return absl::InternalError(error);
  const Machine machine = MachineOf(target);
  llvm::TargetOptions options;
  options.AllowFPOpFusion =
      target.target == Target::kSpirv ? llvm::FPOpFusion::Standard : llvm::FPOpFusion::Fast;
  // At other levels LLVM's pass CodeGenPrepare makes OpIAddCarry, at which Intel's compiler of 2022 ends the
  // process.
  const auto level =
      target.target == Target::kSpirv ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default;
  std::unique_ptr<llvm::TargetMachine> created(
      found->createTargetMachine(module.getTargetTriple(), machine.cpu, machine.features, options,
                                 llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
  if (created == nullptr) return absl::InternalError("LLVM has no such target machine");
  return created;
}

// Links the functions of `bitcode` that the module calls.
absl::Status Link(std::string_view bitcode, llvm::Module& module) {
  const llvm::StringRef bytes(bitcode.data(), bitcode.size());
  auto source = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bytes, "math"), module.getContext());
  if (!source) return absl::InternalError("math bitcode: " + llvm::toString(source.takeError()));
  (*source)->setTargetTriple(module.getTargetTriple());
  (*source)->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(*source), llvm::Linker::LinkOnlyNeeded)) {
    return absl::InternalError("math bitcode does not link");
  }
  return absl::OkStatus();
}

bool IsKernel(const llvm::Function& f) {
  return !f.isDeclaration() && f.getReturnType()->isVoidTy() && f.hasExternalLinkage() &&
         !f.getName().starts_with("xpud_");
}

// Makes a function of ours, which was compiled for x86, one of this module and of any target.
void Adopt(llvm::Function& f) {
  f.setAttributes({});
  f.setLinkage(llvm::GlobalValue::InternalLinkage);
  f.addFnAttr(llvm::Attribute::NoUnwind);
  f.addFnAttr("no-builtins");
}

void SetAttributes(const CodeTarget& target, llvm::Module& module) {
  const Machine machine = MachineOf(target);
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    if (!IsKernel(f)) {
      Adopt(f);
      f.addFnAttr(llvm::Attribute::AlwaysInline);
    }
    f.addFnAttr("no-builtins");
    if (target.target != Target::kHost) continue;
    f.addFnAttr("target-cpu", machine.cpu);
    f.addFnAttr("target-features", machine.features);
    if (llvm::StringRef(machine.features).contains("+avx512f")) f.addFnAttr("prefer-vector-width", "512");
  }
}

// The math functions tolerate more error, so their f32 division is the hardware's with 2 ulp. The exact one
// has a branch that prevents computing elements side by side. In erf and tanh, quotients are about 1 and
// divisors small, so operands need no scaling either.
void UseHardwareDivision(llvm::Module& module) {
  for (llvm::Function& f : module) {
    if (!f.getName().starts_with("xpud_")) continue;
    const bool tame = f.getName() == "xpud_erf_f32" || f.getName() == "xpud_tanh_f32";
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f))) {
      if (i.getOpcode() != llvm::Instruction::FDiv || !i.getType()->isFloatTy()) continue;
      llvm::IRBuilder<> builder(&i);
      const auto divide = tame ? llvm::Intrinsic::nvvm_div_approx_ftz_f : llvm::Intrinsic::nvvm_div_full;
      i.replaceAllUsesWith(builder.CreateIntrinsic(i.getType(), divide, {i.getOperand(0), i.getOperand(1)}));
      i.eraseFromParent();
    }
  }
}

// Replaces doubles by integers. The functions that then compute with them are not inlined: they are large,
// and a kernel calls them often.
absl::Status EmulateDoubles(llvm::Module& module) {
  RETURN_IF_ERROR(ReplaceDoubles(module));
  RETURN_IF_ERROR(Link(SoftDoubleBitcode(), module));
  for (llvm::Function& f : module) {
    if (f.isDeclaration() || !f.getName().starts_with("xpud_soft_")) continue;
    Adopt(f);
    if (module.getTargetTriple().isSPIRV()) f.setCallingConv(llvm::CallingConv::SPIR_FUNC);
    for (llvm::User* user : f.users()) llvm::cast<llvm::CallBase>(user)->setCallingConv(f.getCallingConv());
  }
  if (!llvm::verifyModule(module, nullptr)) return absl::OkStatus();
  return absl::InternalError("emulating doubles made invalid IR");
}

// Runs O3. LLVM is told that no library function exists, so that no loop becomes a call of memcpy or memset
// that the driver cannot resolve.
void Optimise(const CodeTarget& target, llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::TargetLibraryInfoImpl library(module.getTargetTriple());
  library.disableAllFunctions();
  fam.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = target.target == Target::kHost && target.has_doubles;
  tuning.LoopInterleaving = true;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  llvm::ModulePassManager passes = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3);
  if (!target.has_doubles) {  // ReplaceDoubles takes no vectors
    llvm::ScalarizerPassOptions scalars;
    scalars.ScalarizeLoadStore = true;
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ScalarizerPass(scalars)));
    passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::InstCombinePass()));
  }
  passes.run(module, mam);
}

absl::Status Prepare(const CodeTarget& target, llvm::Module& module, llvm::TargetMachine& machine) {
  module.setDataLayout(machine.createDataLayout());
  if (llvm::verifyModule(module, nullptr)) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    llvm::verifyModule(module, &stream);
    return absl::InternalError("invalid IR: " + text);
  }
  RETURN_IF_ERROR(Link(MathBitcode(), module));  // to be inlined
  if (target.target == Target::kNvptx) UseHardwareDivision(module);
  SetAttributes(target, module);
  Optimise(target, module, machine);
  return target.has_doubles ? absl::OkStatus() : EmulateDoubles(module);
}

absl::Status CheckDefined(const std::string& object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) return absl::InternalError(llvm::toString(file.takeError()));
  for (const auto& symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags || !name) return absl::InternalError("unreadable symbol table");
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name->empty()) {
      return absl::InternalError(absl::StrCat("kernel calls ", std::string(*name), ", which no device has"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> GenerateHere(const CodeTarget& target, llvm::Module& module) {
  ASSIGN_OR_RETURN(const std::unique_ptr<llvm::TargetMachine> machine, CreateMachine(target, module));
  RETURN_IF_ERROR(Prepare(target, module, *machine));
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  const auto type = target.target == Target::kNvptx ? llvm::CodeGenFileType::AssemblyFile
                                                    : llvm::CodeGenFileType::ObjectFile;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type)) return absl::InternalError("no emission");
  passes.run(module);
  std::string bytes = buffer.str().str();
  if (target.target == Target::kHost) RETURN_IF_ERROR(CheckDefined(bytes));
  return bytes;
}

void WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::string ReadAll(int fd) {
  std::string bytes;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(n));
  }
}

// The answer's first byte is 'k' before the module, or 'e' before a message.
absl::StatusOr<std::string> GenerateInChild(const CodeTarget& target, llvm::Module& module) {
  InitialiseTargets();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("pipe2 failed");
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return absl::InternalError("fork failed");
  if (child == 0) {
    const absl::StatusOr<std::string> made = GenerateHere(target, module);
    WriteAll(writer.get(), made.ok() ? "k" + *made : "e" + std::string(made.status().message()));
    ::_exit(0);
  }
  writer.Reset();
  std::string answer = ReadAll(reader.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (answer.empty() || status != 0) return absl::InternalError("the SPIR-V back end crashed");
  const bool ok = answer[0] == 'k';
  answer.erase(0, 1);
  if (!ok) return absl::InternalError(answer);
  return answer;
}

}  // namespace

std::string CodeIdentity(const CodeTarget& target) {
  const Machine machine = MachineOf(target);
  return absl::StrCat(std::string(SourceStamp()), "|" LLVM_VERSION_STRING "|",
                      static_cast<int>(target.target), "|", machine.cpu, "|", machine.features,
                      target.has_doubles ? "" : "|soft doubles");
}

absl::Status CheckHostCpu() {
  const auto features = llvm::sys::getHostCPUFeatures();
  for (const char* needed : {"avx2", "fma", "f16c"}) {
    const auto found = features.find(needed);
    if (found == features.end() || !found->second) {
      return absl::UnimplementedError(absl::StrCat("this CPU has no ", needed, ": kernels need x86-64-v3"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Generate(const CodeTarget& target, std::unique_ptr<llvm::Module> module) {
  if (target.target == Target::kSpirv) return GenerateInChild(target, *module);
  return GenerateHere(target, *module);
}

absl::StatusOr<std::string> OptimisedText(std::unique_ptr<llvm::Module> module) {
  ASSIGN_OR_RETURN(const std::unique_ptr<llvm::TargetMachine> machine, CreateMachine(Target::kHost, *module));
  RETURN_IF_ERROR(Prepare(Target::kHost, *module, *machine));
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

}  // namespace xpud::kernels
