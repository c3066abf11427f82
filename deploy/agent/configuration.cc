#include "deploy/agent/configuration.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/byte_size.h"
#include "daemon/config/nearest_word.h"
#include "daemon/config/trusted_file.h"
#include "daemon/config/user.h"
#include "deploy/agent/core/claim_part.h"
#include "proto/base/status_macros.h"
#include "proto/base/unix_address.h"

namespace xpud::agent {
namespace {

std::string Listed(const std::vector<std::string_view>& words) {
  return absl::StrJoin(words, ", ", [](std::string* out, std::string_view word) { out->append(word); });
}

// Reads the text of a value. Returns what is allowed, if this is not.
using ReadValue = std::function<std::optional<std::string>(const std::string& text)>;

ReadValue Path(std::string& out) {
  return [&out](const std::string& text) -> std::optional<std::string> {
    if (text.empty() || text[0] != '/') return "an absolute path";
    out = text;
    return std::nullopt;
  };
}

ReadValue SocketPath(std::string& out) {
  return [&out](const std::string& text) -> std::optional<std::string> {
    if (text.empty() || text[0] != '/' || !UnixAddress(text).ok())
      return "an absolute path of at most 107 bytes";
    out = text;
    return std::nullopt;
  };
}

// A path, or "off".
ReadValue SocketPathOrOff(std::string& out) {
  return [&out](const std::string& text) -> std::optional<std::string> {
    out.clear();
    if (text == "off") return std::nullopt;
    return SocketPath(out)(text) ? std::optional<std::string>("an absolute path of at most 107 bytes, or off")
                                 : std::nullopt;
  };
}

// Text that is not empty.
ReadValue Words(std::string& out, const char* allowed) {
  return [&out, allowed](const std::string& text) -> std::optional<std::string> {
    if (text.empty()) return allowed;
    out = text;
    return std::nullopt;
  };
}

ReadValue Integer(uint32_t& out, uint32_t least, uint32_t most) {
  return [=, &out](const std::string& text) -> std::optional<std::string> {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most)
      return absl::StrCat("an integer from ", least, " to ", most);
    out = number;
    return std::nullopt;
  };
}

ReadValue Size(std::optional<uint64_t>& out) {
  return [&out](const std::string& text) -> std::optional<std::string> {
    const std::optional<uint64_t> bytes = ParseBytes(text);
    const bool has_unit =
        !text.empty() &&
        (text.back() == 'B' || std::string_view("KMGT").find(text.back()) != std::string_view::npos);
    if (!bytes || *bytes == 0 || !has_unit) return "a size with a unit, such as 16GiB or 512MiB";
    out = bytes;
    return std::nullopt;
  };
}

// A time such as 90s, 5m, 2h or 1d.
ReadValue Duration(uint64_t& out_ms) {
  return [&out_ms](const std::string& text) -> std::optional<std::string> {
    static const std::map<char, uint64_t> kUnits = {
        {'s', 1000}, {'m', 60'000}, {'h', 3'600'000}, {'d', 86'400'000}};
    const auto unit = text.empty() ? kUnits.end() : kUnits.find(text.back());
    uint32_t number = 0;
    if (unit == kUnits.end() || !absl::SimpleAtoi(text.substr(0, text.size() - 1), &number) ||
        number * unit->second < Budget::kMinLeaseMs || number * unit->second > Budget::kMaxLeaseMs)
      return "a time with a unit from 1s to 30d, such as 90s, 5m or 2h";
    out_ms = number * unit->second;
    return std::nullopt;
  };
}

ReadValue Switch(bool& out) {
  return [&out](const std::string& text) -> std::optional<std::string> {
    if (text != "true" && text != "false") return "true or false";
    out = text == "true";
    return std::nullopt;
  };
}

// One of `words`; `take` gets its index.
ReadValue Choice(std::vector<std::string_view> words, std::function<void(size_t)> take) {
  return [words = std::move(words),
          take = std::move(take)](const std::string& text) -> std::optional<std::string> {
    const auto found = std::ranges::find(words, text);
    if (found == words.end()) return absl::StrCat("one of ", Listed(words));
    take(static_cast<size_t>(found - words.begin()));
    return std::nullopt;
  };
}

const char* TypeOf(const YAML::Node& node) {
  return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : node.IsNull() ? "nothing" : "a value";
}

// Reads the file. Continues after problems, to report all of them.
class Reader {
 public:
  Reader(std::vector<Problem>& problems, Configuration& out) : problems_(problems), out_(out) {}

  void Read(const std::string& text) try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) Add(documents[1], "a second document begins; use one document per file");
    if (documents.empty() || documents[0].IsNull()) return;
    ReadMap("the file", documents[0], FileKeys());
  } catch (const YAML::Exception& error) {
    Add(error.mark, absl::StrCat("not valid YAML: ", error.msg));
  }

  std::vector<std::string> KeysForRestart(const Configuration& before, const Configuration& now) {
    std::vector<std::string> found;
    AddDifferences("", FileKeys(), before, now, found);
    return found;
  }

 private:
  // Reads the value of a key.
  using ReadNode = std::function<void(const YAML::Node& key, const YAML::Node& value)>;
  using Differs = std::function<bool(const Configuration& a, const Configuration& b)>;
  struct Key {
    std::string_view name;
    ReadNode read;
    Differs differs = nullptr;   // in what needs a restart; null: the key changes at run time
    std::vector<Key> keys = {};  // of a map
  };

  // A key that needs a restart. `get`: its value in a configuration.
  template <typename Get>
  Key Fixed(std::string_view name, ReadValue read, Get get) {
    return {name, Value(std::move(read)), [get](const Configuration& a, const Configuration& b) {
              return std::invoke(get, a) != std::invoke(get, b);
            }};
  }

  Key Section(std::string_view name, std::vector<Key> keys) {
    return {name,
            [this, name, keys](const auto&, const auto& node) { ReadMap(std::string(name), node, keys); },
            nullptr, keys};
  }

  static void AddDifferences(const std::string& prefix, const std::vector<Key>& keys,
                             const Configuration& before, const Configuration& now,
                             std::vector<std::string>& found) {
    for (const Key& key : keys) {
      const std::string name = prefix + std::string(key.name);
      if (key.differs && key.differs(before, now)) found.push_back(name);
      AddDifferences(name + ": ", key.keys, before, now, found);
    }
  }

  std::vector<Key> FileKeys() {
    return {Fixed("socket", SocketPath(out_.socket), &Configuration::socket),
            Fixed("state", Path(out_.state), &Configuration::state),
            Fixed("node", Words(out_.node, "the machine's name in its cluster"), &Configuration::node),
            Fixed("metrics-listen", Words(out_.metrics_listen, "HOST:PORT, PORT or unix:PATH"),
                  &Configuration::metrics_listen),
            Section("grants", GrantKeys()),
            Section("kubernetes", KubernetesKeys()),
            Section("slurm", SlurmKeys())};
  }

  void Add(const YAML::Mark& mark, std::string text) {
    problems_.push_back({mark.line + 1, mark.column + 1, std::move(text)});
  }
  void Add(const YAML::Node& node, std::string text) { Add(node.Mark(), std::move(text)); }

  // Calls `take` with each key that occurs for the first time and is a word.
  void ForEach(const std::string& what, const YAML::Node& map, const ReadNode& take) {
    if (map.IsNull()) return;
    if (!map.IsMap())
      return Add(map, absl::StrCat(what, ": ", TypeOf(map), " is not allowed; use a map of keys to values"));
    std::map<std::string, int> seen;
    for (const auto& pair : map) {
      const YAML::Node& key = pair.first;
      if (!key.IsScalar()) {
        Add(key, absl::StrCat("a key must be a word, not ", TypeOf(key)));
        continue;
      }
      const auto [at, is_new] = seen.emplace(key.Scalar(), key.Mark().line + 1);
      if (is_new) {
        take(key, pair.second);
      } else {
        Add(key, absl::StrCat("'", key.Scalar(), "' is already set in line ", at->second, "; set it once"));
      }
    }
  }

  void ReadMap(const std::string& what, const YAML::Node& map, const std::vector<Key>& keys) {
    ForEach(what, map, [&](const YAML::Node& key, const YAML::Node& value) {
      const auto found = std::ranges::find(keys, key.Scalar(), &Key::name);
      if (found != keys.end()) return found->read(key, value);
      std::vector<std::string_view> names;
      for (const Key& each : keys) names.push_back(each.name);
      const std::string nearest(config::NearestWord(key.Scalar(), names));
      Add(key,
          absl::StrCat("unknown key '", key.Scalar(), "' in ", what, "; ",
                       nearest.empty() ? "use one of " + Listed(names) : "did you mean '" + nearest + "'?"));
    });
  }

  ReadNode Value(ReadValue read) {
    return [this, read = std::move(read)](const YAML::Node& key, const YAML::Node& value) {
      const std::optional<std::string> allowed = read(value.IsScalar() ? value.Scalar() : "");
      if (value.IsScalar() && !allowed) return;
      const std::string found = value.IsScalar() ? absl::StrCat("'", value.Scalar(), "'") : TypeOf(value);
      Add(value.IsNull() ? key : value,
          absl::StrCat(key.Scalar(), ": ", found, " is not allowed; use ", allowed.value_or("a value")));
    };
  }

  Budget ReadBudget(const std::string& what, const YAML::Node& node) {
    Budget budget;
    ReadMap(what, node,
            {{"share", Value(Integer(budget.share, 1, kMaxShare))},
             {"memory", Value(Size(budget.memory))},
             {"claims", Value(Integer(budget.claims, 1, Budget::kMaxClaims))},
             {"class", Value(Choice({kClasses.begin(), kClasses.end()},
                                    [&](size_t rank) { budget.best_class = std::string(kClasses[rank]); }))},
             {"lease", Value(Duration(budget.lease_ms))}});
    return budget;
  }

  void ReadUser(const YAML::Node& key, const YAML::Node& node) {
    const Budget budget = ReadBudget(absl::StrCat("grants: users: ", key.Scalar()), node);
    const std::optional<uint32_t> uid = ParseUser(key.Scalar());
    if (!uid)
      return Add(key, absl::StrCat("unknown user '", key.Scalar(), "'; use an account's name or number"));
    if (!out_.grants.budgets.users.emplace(*uid, budget).second)
      Add(key, absl::StrCat("user ", *uid, " already has a budget in this file; set it once"));
  }

  void ReadGroup(const YAML::Node& key, const YAML::Node& node) {
    const Budget budget = ReadBudget(absl::StrCat("grants: groups: ", key.Scalar()), node);
    const std::optional<uint32_t> gid = ParseGroup(key.Scalar());
    auto& groups = out_.grants.budgets.groups;
    if (!gid)
      return Add(key, absl::StrCat("unknown group '", key.Scalar(), "'; use a group's name or number"));
    if (std::ranges::find(groups, *gid, [](const auto& each) { return each.first; }) != groups.end())
      return Add(key, absl::StrCat("group ", *gid, " already has a budget in this file; set it once"));
    groups.emplace_back(*gid, budget);
  }

  // A map from users or groups to budgets.
  ReadNode Entries(const char* what, void (Reader::*read)(const YAML::Node& key, const YAML::Node& node)) {
    return [=, this](const auto&, const auto& entries) {
      ForEach(what, entries, [=, this](const auto& key, const auto& entry) { (this->*read)(key, entry); });
    };
  }

  std::vector<Key> GrantKeys() {
    return {Fixed("socket", SocketPathOrOff(out_.grants.socket),
                  [](const Configuration& in) { return in.grants.socket; }),
            {"users", Entries("grants: users", &Reader::ReadUser)},
            {"groups", Entries("grants: groups", &Reader::ReadGroup)},
            {"default", [this](const auto&, const auto& budget) {
               out_.grants.budgets.fallback = ReadBudget("grants: default", budget);
             }}};
  }

  std::vector<Key> KubernetesKeys() {
    Configuration::KubernetesSettings& out = out_.kubernetes;
    const auto of = [](auto member) {
      return [member](const Configuration& in) { return std::invoke(member, in.kubernetes); };
    };
    using Settings = Configuration::KubernetesSettings;
    return {Fixed("mode",
                  Choice({"off", "dra", "device-plugin"},
                         [&](size_t mode) { out.mode = static_cast<Configuration::KubernetesMode>(mode); }),
                  of(&Settings::mode)),
            Fixed("kubelet", Path(out.kubelet), of(&Settings::kubelet)),
            Fixed("cdi", Path(out.cdi), of(&Settings::cdi)),
            Fixed("sysfs", Path(out.sysfs), of(&Settings::sysfs)),
            Fixed("api-server", Words(out.api_server, "a URL, such as https://10.0.0.1:6443"),
                  of(&Settings::api_server)),
            Fixed("token-file", Path(out.token_file), of(&Settings::token_file)),
            Fixed("ca-file", Path(out.ca_file), of(&Settings::ca_file)),
            Fixed("slots", Integer(out.slots, 1, 100), of(&Settings::slots))};
  }

  std::vector<Key> SlurmKeys() {
    Configuration::SlurmSettings& out = out_.slurm;
    const auto of = [](auto member) {
      return [member](const Configuration& in) { return std::invoke(member, in.slurm); };
    };
    using Settings = Configuration::SlurmSettings;
    return {Fixed("enabled", Switch(out.enabled), of(&Settings::enabled)),
            Fixed("scontrol", Path(out.scontrol), of(&Settings::scontrol)),
            Fixed("squeue", Path(out.squeue), of(&Settings::squeue)),
            Fixed("best-class",
                  Choice({kClasses.begin(), kClasses.end()},
                         [&](size_t rank) { out.best_class = std::string(kClasses[rank]); }),
                  of(&Settings::best_class)),
            Fixed("memory-per-share", Size(out.memory_per_share), of(&Settings::memory_per_share))};
  }

  std::vector<Problem>& problems_;
  Configuration& out_;
};

}  // namespace

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name = {};
  return gethostname(name.data(), name.size()) == 0 ? name.data() : "localhost";
}

std::vector<Problem> ParseConfiguration(const std::string& text, Configuration& out) {
  std::vector<Problem> problems;
  out.node = HostName();
  Reader(problems, out).Read(text);
  std::ranges::sort(problems, {}, [](const Problem& p) { return std::tie(p.line, p.column, p.text); });
  return problems;
}

std::vector<std::string> KeysForRestart(const Configuration& before, const Configuration& now) {
  std::vector<Problem> problems;
  Configuration unused;
  return Reader(problems, unused).KeysForRestart(before, now);
}

absl::StatusOr<Configuration> ReadConfiguration(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, config::ReadTrustedFile(path));
  Configuration configuration;
  const std::vector<Problem> problems = ParseConfiguration(text, configuration);
  if (problems.empty() && configuration.slurm.enabled && configuration.grants.socket.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": slurm is enabled, and grants has socket: off; Slurm's prolog and epilog need that socket"));
  }
  if (problems.empty()) return configuration;
  return absl::InvalidArgumentError(
      absl::StrJoin(problems, "\n", [&](std::string* out, const Problem& problem) {
        absl::StrAppend(out, path, ":", problem.line, ":", problem.column, ": ", problem.text);
      }));
}

}  // namespace xpud::agent
