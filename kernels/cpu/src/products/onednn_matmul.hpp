#pragma once
// The one place where oneDNN 2 (Debian 12) and oneDNN 3 (Debian 13, Ubuntu 24.04) differ for this
// project: version 2 describes an operation before its primitive, version 3 has no such step.
#include <oneapi/dnnl/dnnl.hpp>

namespace meshplan::kernels {

/// What computes c (m, n) = a (m, k) b (k, n), plus `bias` (1, n) unless it is null. Throws
/// dnnl::error where this CPU cannot.
inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine,
                                                    const dnnl::memory::desc& a,
                                                    const dnnl::memory::desc& b,
                                                    const dnnl::memory::desc* bias,
                                                    const dnnl::memory::desc& c,
                                                    const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return bias != nullptr ? dnnl::matmul::primitive_desc(engine, a, b, *bias, c, attributes)
                         : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
  return {bias != nullptr ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c),
          attributes, engine};
#endif
}

}  // namespace meshplan::kernels
