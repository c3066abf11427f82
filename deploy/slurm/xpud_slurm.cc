// Slurm's prolog and epilog for xpud, as root: asks xpud-node-agent to begin or end a job's claim, and writes
// the job's note, by which spank_xpud.c knows what the job's tasks get.
//
// A prolog that fails drains the node. So the prolog succeeds also if the claim cannot be made, and notes
// why: then the job's tasks fail with that text. It fails only if the note cannot be written.
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "deploy/agent/core/files.h"
#include "deploy/agent/grants/local_socket.h"
#include "deploy/agent/slurm/jobs.h"
#include "deploy/agent/slurm/slurm.grpc.pb.h"
#include "proto/base/output.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/trust.h"

namespace xpud::agent::slurm {
namespace {

using Clock = std::chrono::system_clock;
namespace messages = xpud::slurm::v1;

constexpr int kFailure = 1, kUsageError = 2;
// Together with kScontrolTime less than 20 s.
constexpr std::chrono::seconds kPrologTime{15}, kEpilogTime{10};
constexpr std::chrono::seconds kScontrolTime{4};
// How long calls are retried while the agent does not answer.
constexpr std::chrono::seconds kPrologRetries = kPrologTime, kEpilogRetries{3};
constexpr std::chrono::milliseconds kRetryPause{300};
constexpr size_t kMaxNote = 1500;
constexpr char kUsage[] =  // $0: kLocalSocket
    R"(xpud-slurm: what Slurm's prolog and epilog run on a node of xpud, as root.

  xpud-slurm prolog     has xpud-node-agent make the claim of the job SLURM_JOB_ID
  xpud-slurm epilog     has it deleted

  --socket PATH         the agent's (default $0)
  --notes FOLDER        where spank_xpud.so looks for what jobs have (default /run/xpud-slurm)
  --scontrol PATH       asked whether a job has a share while the agent does not answer (default /usr/bin/scontrol)
  --help, --version

If a claim cannot be made, the prolog succeeds, and the job's tasks fail with the reason: the node is not drained.
)";

struct Options {
  std::string action;
  std::string socket = kLocalSocket;
  std::string notes = "/run/xpud-slurm";
  std::string scontrol = "/usr/bin/scontrol";
  bool help = false, version = false;
};

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* const value = word == "--socket"     ? &options.socket
                               : word == "--notes"    ? &options.notes
                               : word == "--scontrol" ? &options.scontrol
                                                      : nullptr;
    if (value != nullptr) {
      ++i;
      if (i == argc || argv[i][0] != '/')
        return absl::InvalidArgumentError(absl::StrCat(word, " needs an absolute path; see --help"));
      *value = argv[i];
    } else if (word == "--help" || word == "--version") {
      (word == "--help" ? options.help : options.version) = true;
    } else if ((word == "prolog" || word == "epilog") && options.action.empty()) {
      options.action = word;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", word, "; see --help"));
    }
  }
  if (options.action.empty() && !options.help && !options.version)
    return absl::InvalidArgumentError("neither prolog nor epilog is given; see --help");
  return options;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<uint32_t> NumberIn(const char* name) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(Variable(name), &number)) return number;
  return absl::FailedPreconditionError(absl::StrCat(name, " is \"", PrintableText(Variable(name), 80),
                                                    "\", not a number; Slurm sets it for prologs"));
}

// The agent, at its socket.
class Agent {
 public:
  Agent(const std::string& socket, std::chrono::seconds time, std::chrono::seconds retries)
      : socket_(socket),
        end_(Clock::now() + time),
        retries_end_(Clock::now() + retries),
        stub_(messages::Slurm::NewStub(
            grpc::CreateChannel(absl::StrCat("unix:", socket), grpc::InsecureChannelCredentials()))) {}

  // Retries, while the agent does not answer and `may_retry` says so after the first attempt, until the
  // retries' end.
  template <typename Method, typename Request, typename Response, typename MayRetry>
  absl::Status Call(Method method, const Request& request, Response* response, MayRetry may_retry) {
    for (bool is_first = true;; is_first = false) {
      grpc::ClientContext context;
      context.set_deadline(end_);
      const grpc::Status status = (stub_.get()->*method)(&context, request, response);
      if (status.ok()) return absl::OkStatus();
      const bool is_lost = status.error_code() == grpc::StatusCode::UNAVAILABLE;
      if (!is_lost || (is_first && !may_retry()) || Clock::now() + kRetryPause >= retries_end_)
        return Explained(status);
      std::this_thread::sleep_for(kRetryPause);
    }
  }

 private:
  absl::Status Explained(const grpc::Status& status) const {
    std::string text = status.error_message();
    // A deadline may also be that of what the agent has waited for.
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE || Clock::now() >= end_) {
      text = absl::StrCat("xpud-node-agent does not answer at ", socket_, ": ", text);
    } else if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      text = absl::StrCat("xpud-node-agent does not serve Slurm at ", socket_, " for uid ", geteuid(),
                          "; run this as root, and set slurm: enabled: true in agent.yaml");
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), text);
  }

  const std::string socket_;
  const Clock::time_point end_, retries_end_;
  const std::unique_ptr<messages::Slurm::Stub> stub_;
};

std::string NotePath(const Options& options, uint32_t job) { return absl::StrCat(options.notes, "/", job); }

absl::Status WriteNote(const Options& options, uint32_t job, const std::string& text) {
  if (mkdir(options.notes.c_str(), 0755) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", options.notes));
  RETURN_IF_ERROR(CheckFolderIsOurs(options.notes));
  return ReplaceFile(NotePath(options, job), text.substr(0, kMaxNote));
}

// What the plugin reads: a line, and warnings.
std::string NoteOf(const messages::BeginResponse& response) {
  if (response.share() == 0) return "none\n";
  std::string note = absl::StrCat("claim ", response.folder(), "\n");
  for (const std::string& warning : response.warnings()) absl::StrAppend(&note, PrintableText(warning), "\n");
  return note;
}

absl::Status Prolog(const Options& options) {
  ASSIGN_OR_RETURN(const uint32_t job, NumberIn("SLURM_JOB_ID"));
  messages::BeginRequest request;
  request.set_job_id(job);
  request.set_uid(NumberIn("SLURM_JOB_UID").value_or(0));
  request.set_user(PrintableText(Variable("SLURM_JOB_USER"), 253));
  request.set_memory(PrintableText(Variable("SPANK_XPUD_MEMORY"), 80));
  request.set_class_(PrintableText(Variable("SPANK_XPUD_CLASS"), 80));
  messages::BeginResponse response;
  Agent agent(options.socket, kPrologTime, kPrologRetries);
  // A job without a share neither waits for an agent nor fails for want of one.
  std::optional<bool> needs_none;
  const auto may_need_claim = [&] {
    if (!needs_none) {
      const Jobs jobs({.scontrol = options.scontrol,
                       .squeue = "",
                       .node = Variable("SLURMD_NODENAME"),
                       .patience = kScontrolTime});
      const absl::StatusOr<Job> asked = jobs.Ask(job);
      needs_none = asked.ok() && asked->share == 0;
    }
    return !*needs_none;
  };
  const absl::Status begun = agent.Call(&messages::Slurm::Stub::Begin, request, &response, may_need_claim);
  if (begun.ok()) return WriteNote(options, job, NoteOf(response));
  if (!may_need_claim()) return WriteNote(options, job, "none\n");
  const std::string reason = PrintableText(std::string(begun.message()));
  std::fprintf(stderr, "xpud-slurm: job %u has no claim: %s\n", job, reason.c_str());
  return WriteNote(options, job, absl::StrCat("failed ", reason, "\n"));
}

// Never fails for want of the agent: it deletes the claims of jobs that have gone when it is back.
absl::Status Epilog(const Options& options) {
  ASSIGN_OR_RETURN(const uint32_t job, NumberIn("SLURM_JOB_ID"));
  messages::EndRequest request;
  request.set_job_id(job);
  messages::EndResponse response;
  Agent agent(options.socket, kEpilogTime, kEpilogRetries);
  if (const absl::Status ended =
          agent.Call(&messages::Slurm::Stub::End, request, &response, [] { return true; });
      !ended.ok())
    std::fprintf(stderr, "xpud-slurm: the claim of job %u may stay until the agent finds it: %s\n", job,
                 std::string(ended.message()).c_str());
  if (unlink(NotePath(options, job).c_str()) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", NotePath(options, job)));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto fail = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "xpud-slurm: %s\n", std::string(status.message()).c_str());
    return code;
  };
  const absl::StatusOr<Options> options = ParseOptions(argc, argv);
  if (!options.ok()) return fail(options.status(), kUsageError);
  if (options->help || options->version) {
    const std::string usage = absl::Substitute(kUsage, kLocalSocket);
    std::fputs(options->help ? usage.c_str() : "xpud-slurm " XPUD_VERSION "\n", stdout);
    return FinishOutput("xpud-slurm") ? 0 : kFailure;
  }
  const absl::Status done = options->action == "prolog" ? Prolog(*options) : Epilog(*options);
  return done.ok() ? 0 : fail(done, kFailure);
}

}  // namespace
}  // namespace xpud::agent::slurm

int main(int argc, char** argv) { return xpud::agent::slurm::Main(argc, argv); }
