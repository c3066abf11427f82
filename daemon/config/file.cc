#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "daemon/config/configuration.h"
#include "daemon/config/trusted_file.h"
#include "daemon/config/user.h"
#include "proto/base/status_macros.h"

namespace xpud::config {
namespace {

const char* TypeOf(const YAML::Node& node) {
  return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : node.IsNull() ? "nothing" : "a value";
}

// Parses one file. Continues after errors, to report all of them.
class Reader {
 public:
  explicit Reader(File& file) : file_(file) {}

  void Read(const std::string& text) try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) Add(documents[1], "a second document begins; use one document per file");
    if (!documents.empty() && !documents[0].IsNull()) ReadTop(documents[0]);
  } catch (const YAML::Exception& error) {
    Add(error.mark, absl::StrCat("not valid YAML: ", error.msg));
  }

 private:
  void Add(const YAML::Mark& mark, std::string text) {
    file_.problems.push_back({mark.line + 1, mark.column + 1, std::move(text)});
  }
  void Add(const YAML::Node& node, std::string text) { Add(node.Mark(), std::move(text)); }

  std::string OriginOf(const YAML::Node& node) const {
    return absl::StrCat(file_.path, ":", node.Mark().line + 1, ":", node.Mark().column + 1);
  }

  // Reports whether a map's key is a word that occurs for the first time.
  bool TakeKey(const YAML::Node& key, std::map<std::string, int>& seen) {
    if (!key.IsScalar()) {
      Add(key, absl::StrCat("a key must be a word, not ", TypeOf(key)));
      return false;
    }
    const auto [at, is_new] = seen.emplace(key.Scalar(), key.Mark().line + 1);
    if (!is_new)
      Add(key, absl::StrCat("'", key.Scalar(), "' is already set in line ", at->second, "; set it once"));
    return is_new;
  }

  void ReadTop(const YAML::Node& top) {
    if (!top.IsMap())
      return Add(top, absl::StrCat("the file is ", TypeOf(top), "; it must be a map from keys to values"));
    std::map<std::string, int> seen;
    for (const auto& pair : top) {
      const YAML::Node &key = pair.first, &value = pair.second;
      if (!TakeKey(key, seen)) continue;
      key.Scalar() == kQuotasKey ? ReadQuotas(key, value) : ReadOption(key, value);
    }
  }

  void ReadOption(const YAML::Node& key, const YAML::Node& value) {
    const std::string& name = key.Scalar();
    const OptionRow* const row = FindRow(name);
    if (row == nullptr || row->where == OptionRow::kCommandLineOnly) return RefuseKey(key, row != nullptr);
    const std::string allowed = row->value.empty() ? "true or false" : row->type.allowed;
    if (!value.IsScalar()) {
      const YAML::Node& place = value.IsNull() ? key : value;
      return Add(place, absl::StrCat(name, ": ", TypeOf(value), " is not allowed; use ", allowed));
    }
    Options scratch;
    const absl::Status status = row->type.read(scratch, value.Scalar(), Source::kFile);
    if (!status.ok()) return Add(value, absl::StrCat(name, ": ", status.message()));
    const YAML::Mark mark = key.Mark();
    file_.settings.push_back({row, value.Scalar(), OriginOf(key), mark.line + 1, mark.column + 1});
  }

  void RefuseKey(const YAML::Node& key, bool command_line_only) {
    const std::string& name = key.Scalar();
    if (command_line_only)
      return Add(key, absl::StrCat("'", name, "' is an option of the command line only"));
    const std::string nearest(NearestName(name, Source::kFile));
    Add(key, absl::StrCat("unknown key '", name, "'",
                          nearest.empty() ? "; `xpuctl config example` lists them"
                                          : "; did you mean '" + nearest + "'?"));
  }

  void ReadQuotas(const YAML::Node& key, const YAML::Node& quotas) {
    file_.quotas_origin = OriginOf(key);
    if (quotas.IsNull()) return;
    if (!quotas.IsMap())
      return Add(quotas, absl::StrCat(kQuotasName, ": ", TypeOf(quotas),
                                      " is not allowed; use a map from users to sizes"));
    std::map<std::string, int> seen;
    for (const auto& pair : quotas) {
      if (TakeKey(pair.first, seen)) ReadQuota(pair.first, pair.second);
    }
  }

  void ReadQuota(const YAML::Node& user, const YAML::Node& size) {
    const std::string& name = user.Scalar();
    const size_t slash = name.find('/');
    const std::optional<uint32_t> uid = ParseUser(name.substr(0, slash));
    if (!uid)
      Add(user,
          absl::StrCat(kQuotasName, ": unknown user '", user.Scalar(), "'; use an account's name or number"));
    uint64_t bytes = 0;
    if (!size.IsScalar() || !ReadSize(size.Scalar(), Source::kFile, bytes).ok()) {
      const std::string found = size.IsScalar() ? absl::StrCat("'", size.Scalar(), "'") : TypeOf(size);
      return Add(
          size.IsNull() ? user : size,
          absl::StrCat(kQuotasName, ": ", found, " is not allowed; use a size with a unit, such as 16GiB"));
    }
    if (!uid) return;
    const Tenant tenant = {*uid, slash == std::string::npos ? "" : name.substr(slash + 1)};
    if (std::ranges::find(file_.quotas, tenant, &TenantQuota::tenant) != file_.quotas.end())
      return Add(user, absl::StrCat(kQuotasName, ": ", tenant.Text(),
                                    " already has a quota in this file; set it once"));
    file_.quotas.push_back({tenant, bytes});
  }

  static constexpr const char* kQuotasName = kQuotasKey.data();
  File& file_;
};

}  // namespace

std::string Describe(const File& file, const Problem& problem) {
  return absl::StrCat(file.path, ":", problem.line, ":", problem.column, ": ", problem.text);
}

File ParseFile(const std::string& path, const std::string& text) {
  File file;
  file.path = path;
  Reader(file).Read(text);
  std::ranges::sort(file.problems, {}, [](const Problem& p) { return std::tie(p.line, p.column, p.text); });
  return file;
}

absl::StatusOr<File> ReadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTrustedFile(path));
  return ParseFile(path, text);
}

}  // namespace xpud::config
