#include "daemon/gateway/certificates.h"

#include <fcntl.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "proto/remote/credentials.h"

namespace xpud::remote {
namespace {

constexpr unsigned kRefreshSeconds = 1;

template <auto function>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    function(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

Bio Reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& path, const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(Reader(text).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError(path + " has no certificate in PEM");
  return certificate;
}

absl::Status CheckKey(const std::string& path, const std::string& text, X509& certificate,
                      const std::string& certificate_path) {
  // Without an empty password, OpenSSL would ask for one on the terminal.
  const Key key(PEM_read_bio_PrivateKey(Reader(text).get(), nullptr, nullptr, const_cast<char*>("")));
  const bool matches = key != nullptr && X509_check_private_key(&certificate, key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr)
    return absl::InvalidArgumentError(path + " has no private key in PEM without a password");
  if (matches) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the key in ", path, " is not that of the certificate in ",
                                                 certificate_path,
                                                 "; a certificate and its key must be replaced together"));
}

absl::Time EndOf(const X509& certificate) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return absl::InfiniteFuture();
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::StatusOr<UniqueFd> CopyOf(const std::string& text) {
  UniqueFd copy(memfd_create("xpud-certificate", MFD_CLOEXEC));
  if (!copy.valid()) return DescriptorError("memfd_create");
  if (write(copy.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return absl::ErrnoToStatus(errno, "cannot copy a certificate");
  return copy;
}

// Replaces the file behind `shown`, which keeps its number, so that its path in /proc leads to the new one.
void Show(UniqueFd copy, UniqueFd& shown) {
  if (!shown.valid())
    shown = std::move(copy);
  else
    dup3(copy.get(), shown.get(), O_CLOEXEC);
}

std::string PathOf(const UniqueFd& fd) { return fd.valid() ? absl::StrCat("/proc/self/fd/", fd.get()) : ""; }

void LogEnd(const std::string& path, absl::Time end) {
  const absl::Duration rest = end - absl::Now();
  const std::string text = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", end, absl::UTCTimeZone());
  if (rest <= absl::ZeroDuration())
    spdlog::error(
        "certificate_expired path={} end={} note=\"clients refuse it: replace it, then send SIGHUP\"", path,
        text);
  else if (rest < Certificates::kSoon)
    spdlog::warn("certificate_expires_soon path={} end={} days={}", path, text, rest / absl::Hours(24));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Certificates>> Certificates::Load(Paths paths) {
  std::unique_ptr<Certificates> certificates(new Certificates(std::move(paths)));
  RETURN_IF_ERROR(certificates->Reload());
  return certificates;
}

absl::Status Certificates::Reload() {
  ASSIGN_OR_RETURN(const std::string key, ReadSecret(paths_.key));
  ASSIGN_OR_RETURN(const std::string certificate, ReadWhole(paths_.certificate));
  ASSIGN_OR_RETURN(const Certificate parsed, ParseCertificate(paths_.certificate, certificate));
  RETURN_IF_ERROR(CheckKey(paths_.key, key, *parsed, paths_.certificate));
  ASSIGN_OR_RETURN(UniqueFd certificate_copy, CopyOf(certificate));
  ASSIGN_OR_RETURN(UniqueFd key_copy, CopyOf(key));
  UniqueFd authority_copy;
  std::map<std::string, absl::Time> ends = {{paths_.certificate, EndOf(*parsed)}};
  if (!paths_.client_authority.empty()) {
    ASSIGN_OR_RETURN(const std::string authority, ReadWhole(paths_.client_authority));
    ASSIGN_OR_RETURN(const Certificate first, ParseCertificate(paths_.client_authority, authority));
    ends[paths_.client_authority] = EndOf(*first);
    ASSIGN_OR_RETURN(authority_copy, CopyOf(authority));
  }
  Show(std::move(key_copy), key_);
  Show(std::move(certificate_copy), certificate_);
  if (authority_copy.valid()) Show(std::move(authority_copy), client_authority_);
  MutexLock lock(mutex_);
  ends_ = std::move(ends);
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> Certificates::ServerCredentials() const {
  const auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      PathOf(key_), PathOf(certificate_), PathOf(client_authority_), kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (client_authority_.valid()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

void Certificates::LogExpiry() const {
  for (const auto& [path, end] : Ends()) LogEnd(path, end);
}

std::map<std::string, absl::Time> Certificates::Ends() const {
  MutexLock lock(mutex_);
  return ends_;
}

}  // namespace xpud::remote
