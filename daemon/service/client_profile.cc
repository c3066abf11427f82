#include "daemon/service/client_profile.h"

namespace xpud::service {

transport::SessionProfile ForClient(const records::Profile& profile) {
  const records::Ring<records::CommandRecord>& ring = profile.records;
  transport::SessionProfile out;
  for (const auto& name : profile.names) out.names.push_back(*name);
  out.overwritten = ring.first();
  out.records.reserve(ring.added() - ring.first());
  for (uint64_t number = ring.first(); number < ring.added(); ++number) {
    const records::CommandRecord& record = ring[number];
    out.records.push_back({.sequence = record.sequence,
                           .decoded_ns = record.decoded_ns,
                           .began_ns = record.began_ns,
                           .ended_ns = record.ended_ns,
                           .device_ns = record.device_ns,
                           .bytes = record.bytes,
                           .kernel = record.kernel,
                           .kind = record.kind,
                           .row = record.row,
                           .launches = record.launches,
                           .queue = record.queue,
                           .refused = record.refused});
  }
  return out;
}

}  // namespace xpud::service
