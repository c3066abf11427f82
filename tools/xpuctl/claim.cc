#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/text.h"
#include "tools/xpuctl/claim_text.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

constexpr double kUsePeriod = 0.25;  // seconds, to see how much of the devices' time claims use

// A claim as the options say, and the names of the fields that they set.
class Wishes {
 public:
  explicit Wishes(const std::string& key) { claim_.set_key(key); }

  // Returns "" or what is wrong with the options.
  std::string Read(const Invocation& invocation) {
    std::string trouble;
    const auto read = [&](const char* name, std::string (Wishes::*take)(const std::string&)) {
      const auto found = invocation.options.find(name);
      if (trouble.empty() && found != invocation.options.end()) trouble = (this->*take)(found->second);
    };
    const auto read_all = [&](const char* name, std::string (Wishes::*take)(const std::string&)) {
      const auto [first, last] = invocation.values.equal_range(name);
      for (auto each = first; each != last && trouble.empty(); ++each) trouble = (this->*take)(each->second);
    };
    read("--class", &Wishes::TakeClass);
    read("--weight", &Wishes::TakeWeight);
    read("--device", &Wishes::TakeDevices);
    read("--memory", &Wishes::TakeMemory);
    read("--time", &Wishes::TakeTime);
    read("--sessions", &Wishes::TakeSessions);
    read_all("--label", &Wishes::TakeLabel);
    read_all("--uid", &Wishes::TakeUser);
    read_all("--tenant", &Wishes::TakeTenant);
    read("--door-uid", &Wishes::TakeDoorUser);
    read("--lifetime", &Wishes::TakeLifetime);
    return trouble;
  }
  const v1::Claim& claim() const { return claim_; }
  v1::UpdateClaimRequest Update() const {
    v1::UpdateClaimRequest request;
    *request.mutable_claim() = claim_;
    *request.mutable_update_mask() = mask_;
    return request;
  }
  bool any() const { return mask_.paths_size() != 0; }

 private:
  static std::string Wrong(const char* what, const std::string& found) {
    return absl::StrCat(what, ", not \"", found, "\"");
  }
  void Names(const char* field) { mask_.add_paths(field); }

  std::string TakeClass(const std::string& text) {
    claim_.set_class_(text);  // the daemon says which there are
    Names("class");
    return "";
  }
  std::string TakeWeight(const std::string& text) {
    uint32_t weight = 0;
    if (!absl::SimpleAtoi(text, &weight) || weight == 0) return Wrong("--weight takes 1 to 10000", text);
    claim_.set_weight(weight);
    Names("weight");
    return "";
  }
  std::string TakeDevices(const std::string& text) {
    for (const auto each : absl::StrSplit(text, ',')) {
      uint32_t device = 0;
      if (!absl::SimpleAtoi(each, &device)) return Wrong("--device takes numbers of devices, as 0,1", text);
      claim_.add_devices(device);
    }
    Names("devices");
    return "";
  }
  std::string TakeMemory(const std::string& text) {
    const TextRange range = SplitRange(text);
    const auto least = ParseBytes(range.least.empty() ? "0" : range.least);
    const auto most = ParseBytes(range.most.empty() ? "0" : range.most);
    if (!least || !most) return Wrong("--memory takes sizes as 8GiB..20GiB, 8GiB.. or ..20GiB", text);
    claim_.set_memory_least_bytes(*least);
    if (!range.most.empty()) claim_.set_memory_most_bytes(*most);
    Names("memory_least_bytes");
    Names("memory_most_bytes");
    return "";
  }
  std::string TakeTime(const std::string& text) {
    const TextRange range = SplitRange(text);
    const auto least = ParsePercent(range.least.empty() ? "0%" : range.least);
    const auto most = ParsePercent(range.most.empty() ? "100%" : range.most);
    if (!least || !most || *most == 0)
      return Wrong("--time takes per cents as 30%..60%, 30%.. or ..60%", text);
    claim_.set_time_least(*least);
    claim_.set_time_most(*most);
    Names("time_least");
    Names("time_most");
    return "";
  }
  std::string TakeSessions(const std::string& text) {
    uint32_t most = 0;
    if (text != "none" && !absl::SimpleAtoi(text, &most))
      return Wrong("--sessions takes a number or none", text);
    if (text != "none") claim_.set_sessions_most(most);
    Names("sessions_most");
    return "";
  }
  std::string TakeLabel(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return Wrong("--label takes NAME=VALUE", text);
    (*claim_.mutable_labels())[text.substr(0, equals)] = text.substr(equals + 1);
    Names("labels");
    return "";
  }
  std::string TakeUser(const std::string& text) {
    const std::optional<uint32_t> uid = ParseUser(text);
    if (!uid) return Wrong("--uid takes a user of this machine", text);
    claim_.add_holders()->set_uid(*uid);
    Names("holders");
    return "";
  }
  std::string TakeTenant(const std::string& text) {
    const size_t slash = text.find('/');
    const std::optional<uint32_t> uid = ParseUser(text.substr(0, slash));
    if (!uid || slash == std::string::npos || slash + 1 == text.size())
      return Wrong("--tenant takes USER/TENANT, where USER runs the gateway", text);
    v1::Holder& holder = *claim_.add_holders();
    holder.set_uid(*uid);
    holder.set_tenant_name(text.substr(slash + 1));
    Names("holders");
    return "";
  }
  std::string TakeDoorUser(const std::string& text) {
    const std::optional<uint32_t> uid = ParseUser(text);
    if (!uid && text != "none") return Wrong("--door-uid takes a user of this machine, or none", text);
    if (uid) claim_.set_door_uid(*uid);
    Names("door_uid");
    return "";
  }
  std::string TakeLifetime(const std::string& text) {
    const std::optional<uint64_t> ms = text == "none" ? 0 : ParseLifetime(text);
    if (!ms) return Wrong("--lifetime takes a time as 90s, 15m, 2h or 7d, or none", text);
    claim_.set_lifetime_ms(*ms);
    Names("lifetime_ms");
    return "";
  }

  v1::Claim claim_;
  google::protobuf::FieldMask mask_;
};

std::string SessionsText(uint32_t sessions, const char* one, const char* more) {
  return absl::StrCat(sessions, sessions == 1 ? one : more);
}

std::string Size(uint64_t bytes) { return Bytes(static_cast<double>(bytes)); }

// Returns the claim as the daemon lists it, with what its sessions hold. NotFound would mean that no daemon
// runs.
absl::StatusOr<v1::Claim> Find(control::Client& client, const std::string& key) {
  const auto list = client.ListClaims();
  if (!list.ok()) return list.status();
  for (const v1::Claim& claim : list->claims())
    if (claim.key() == key) return claim;
  return absl::FailedPreconditionError(absl::StrCat("there is no claim ", key, "; xpuctl claim lists them"));
}

// The daemon's NotFound is about a claim, not about the daemon.
int ReportCall(const absl::Status& failure) {
  (void)Report(failure);
  return kError;
}

int Create(control::Client& client, const Wishes& wishes) {
  const auto claim = client.CreateClaim(wishes.claim());
  if (!claim.ok()) return ReportCall(claim.status());
  std::printf("%s: created, %s; mount %s over the clients' /run/xpud\n", PrintableText(claim->key()).c_str(),
              claim->kept() ? "kept" : "not kept (the daemon has no --state-dir)",
              PrintableText(claim->door()).c_str());
  return kOk;
}

int Change(control::Client& client, const v1::UpdateClaimRequest& request,
           const std::function<std::string(const v1::Claim& before, const v1::Claim& after)>& text) {
  const std::string& key = request.claim().key();
  const auto before = Find(client, key);
  if (!before.ok()) return ReportCall(before.status());
  const auto after = client.UpdateClaim(request);
  if (!after.ok()) return ReportCall(after.status());
  std::printf("%s: %s\n", PrintableText(key).c_str(), text(*before, *after).c_str());
  return kOk;
}

int SetState(control::Client& client, const std::string& key, std::optional<bool> paused,
             std::optional<bool> drained,
             const std::function<std::string(const v1::Claim& before, const v1::Claim& after)>& text) {
  v1::UpdateClaimRequest request;
  request.mutable_claim()->set_key(key);
  if (paused) request.mutable_update_mask()->add_paths("paused");
  if (drained) request.mutable_update_mask()->add_paths("drained");
  request.mutable_claim()->set_paused(paused.value_or(false));
  request.mutable_claim()->set_drained(drained.value_or(false));
  return Change(client, request, text);
}

int Delete(control::Client& client, const std::string& key) {
  const auto ended = client.DeleteClaim(key);
  if (!ended.ok()) return ReportCall(ended.status());
  std::printf("%s: deleted; %s ended, %s freed\n", key.c_str(),
              SessionsText(ended->sessions(), " session", " sessions").c_str(),
              Size(ended->memory_bytes()).c_str());
  return kOk;
}

int Show(control::Client& client, const Invocation& invocation, const std::string& key) {
  const auto claim = Find(client, key);
  if (!claim.ok()) return ReportCall(claim.status());
  const bool plain = invocation.output == Output::kTable || invocation.output == Output::kWide;
  std::fputs((plain ? ClaimText(*claim) : Document(ToJson(*claim))).c_str(), stdout);
  return kOk;
}

int List(control::Client& client, const Invocation& invocation) {
  std::optional<v1::ListClaimsResponse> before;
  const bool table = invocation.output == Output::kTable || invocation.output == Output::kWide;
  return ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    if (first && table) {
      const auto earlier = client.ListClaims();
      if (!earlier.ok()) return earlier.status();
      before = *earlier;
      if (!before->claims().empty()) Pause(kUsePeriod);
    }
    const auto now = client.ListClaims();
    if (!now.ok()) return now.status();
    std::string text;
    if (invocation.output == Output::kCsv)
      text = CsvOf(now->time_ns(), now->claims()).ToString(first);
    else if (table)
      text = ClaimsText(*now, before ? &*before : nullptr, invocation.output == Output::kWide);
    else
      text = Document(ToJson(*now));
    before = *now;
    return text;
  });
}

}  // namespace

int RunClaim(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.arguments;
  const std::string verb = words.empty() ? "list" : words[0], key = words.size() < 2 ? "" : words[1];
  const bool grants = verb == "create" || verb == "set";
  if (verb != "list" && key.empty()) return RefuseUsage("claim", verb + " takes the key of a claim");
  if (!grants && !invocation.options.empty())
    return RefuseUsage("claim", absl::StrCat(invocation.options.begin()->first, " is for create and set"));
  if (!invocation.hosts.empty()) return RefuseUsage("claim", "it takes one host: use --address");
  Wishes wishes(key);
  if (const std::string trouble = wishes.Read(invocation); !trouble.empty())
    return RefuseUsage("claim", trouble);
  if (verb == "set" && !wishes.any()) return RefuseUsage("claim", "set takes an option to change");
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  if (verb == "list") return List(*client, invocation);
  if (verb == "create") return Create(*client, wishes);
  if (verb == "set") return Change(*client, wishes.Update(), ChangeText);
  if (verb == "show") return Show(*client, invocation, key);
  if (verb == "delete") return Delete(*client, key);
  if (verb == "pause") {
    return SetState(*client, key, true, std::nullopt, [](const v1::Claim& before, const v1::Claim&) {
      return absl::StrCat("paused; ", SessionsText(before.sessions(), " session waits", " sessions wait"),
                          ", ", Size(before.memory_bytes()), " stay");
    });
  }
  if (verb == "drain") {
    return SetState(*client, key, std::nullopt, true, [](const v1::Claim&, const v1::Claim& after) {
      return absl::StrCat("no new sessions; ", SessionsText(after.sessions(), " is", " are"),
                          " open (undo both: claim resume)");
    });
  }
  if (verb == "resume") {
    return SetState(*client, key, false, false, [](const v1::Claim&, const v1::Claim& after) {
      return absl::StrCat("resumed; ", SessionsText(after.sessions(), " session goes", " sessions go"),
                          " on");
    });
  }
  return RefuseUsage("claim", absl::StrCat("there is no ", verb,
                                           "; there are create, set, show, pause, resume, drain and delete"));
}

}  // namespace xpud::xpuctl
