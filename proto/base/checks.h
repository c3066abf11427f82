// Whether this build checks what clients send and counts what they take. Always, but in the one that exists
// to measure what that costs (the CMake preset `without-checks`), where any client can do as it likes with
// the daemon: it serves nobody but tests/bench. This is the one place that knows.
//
// What goes without, there: the form of commands (proto/wire), handles, bounds and shapes (daemon/session),
// memory accounts (daemon/memory), and the range of index contents (kernels).
#pragma once

namespace xpud {

#ifdef XPUD_WITHOUT_CHECKS
inline constexpr bool kChecked = false;
#else
inline constexpr bool kChecked = true;
#endif

// `wrong`, where this build checks. Nothing is left of what has no side effects otherwise.
constexpr bool Refused(bool wrong) { return kChecked && wrong; }

}  // namespace xpud
