// How Python values look as JSON: calls are trees of their arguments.
#pragma once

#include <string>

#include "core/json_fields.hpp"

namespace meshplan::planner::python {

/// A call is an object of its keyword arguments, with its name under kCall and the positional
/// arguments in a list under kArguments.
inline constexpr const char* kCall = "$call";
inline constexpr const char* kArguments = "$arguments";
/// What is not understood is an object that holds its text, and where it stands: "FILE:12".
inline constexpr const char* kSource = "$source";
inline constexpr const char* kPlace = "$place";
/// Arguments that were unpacked (**name): their text.
inline constexpr const char* kUnpacked = "$unpacked";
/// The value whose method was called.
inline constexpr const char* kSelf = "$self";
/// Calls of functions that are not known, as statements, which were given this value and may have
/// changed it: a list of calls.
inline constexpr const char* kTouched = "$touched";

/// Objects whose methods made something else of a value, which is shown as it was before.
inline constexpr const char* kTransforms = "$transforms";

bool is_call(const Json& value);
bool is_unknown(const Json& value);
/// The name of a call, "" of anything else.
std::string call_name(const Json& value);

}  // namespace meshplan::planner::python
