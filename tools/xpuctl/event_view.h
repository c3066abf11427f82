// An event as a line for people, printable whatever the daemon sent. Pure functions but for the time zone.
#pragma once

#include <string>

#include "proto/control/xpud.pb.h"

namespace xpud::xpuctl {

// `last` is the sequence of the event shown before it: where the numbers skip, a line says how many are gone.
std::string EventText(const v1::Event& event, uint64_t last);

// A line of the daemon's log.
std::string LogText(const v1::LogLine& line);

}  // namespace xpud::xpuctl
