// Paged decode attention on the host CPU: one query token a sequence, grouped heads, rows read where they lie (nothing is gathered).
//
// keys [N, P, K, DK], values [N, P, K, DV] (null: the value is the front of the key row, as in MLA), token-major like the pool.
// A tile is C tokens, found through the block table by row pointers, so that a page of any size will do. Per tile and KV head: scores
// of GB query heads at a time, a running softmax, and the weighted sum. While one head of a tile is worked on, its share of the next
// tile is prefetched: the pages are shuffled, and the hardware prefetcher stops at a page's edge.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int W = 16, ACCUMULATORS = 16;
#else
constexpr int W = 8, ACCUMULATORS = 8;
#endif
constexpr int C = 16;
#define UNROLL _Pragma("GCC unroll 16")

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));
typedef float v4 __attribute__((vector_size(16)));

inline vf load(const float* p) { vf r; std::memcpy(&r, p, sizeof r); return r; }
inline vf load(const uint16_t* p) { vh h; std::memcpy(&h, p, sizeof h); return (vf)(__builtin_convertvector(h, vu) << 16); }  // bf16
inline void store(float* p, vf v) { std::memcpy(p, &v, sizeof v); }
inline vf all(float x) { return x - vf{}; }

// Sums of neighbours within each 128-bit lane: of a, then of b.
inline vf pair(vf a, vf b) {
#if defined(__AVX512F__)
    const vi even = {0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30}, odd = even + 1;
#else
    const vi even = {0, 2, 8, 10, 4, 6, 12, 14}, odd = even + 1;
#endif
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
}

// The four sums of four vectors.
inline v4 sums(const vf* a) {
    vf x = pair(pair(a[0], a[1]), pair(a[2], a[3]));
    v4 lanes[W / 4], r;
    std::memcpy(lanes, &x, sizeof x);
    r = lanes[0];
    for (int i = 1; i < W / 4; i++) r += lanes[i];
    return r;
}

// e^x for x <= 0 within 2e-7; below -87 about 1e-38, which is nothing beside the 1 of the largest score. NaN stays NaN.
inline vf exp_of(vf x) {
    x = x < -87.0f ? all(-87.0f) : x;
    vi n = __builtin_convertvector(x * 1.44269504f - 0.5f, vi);
    vf f = __builtin_convertvector(n, vf), r = x - f * 0.693359375f + f * 2.12194440e-4f;
    vf p = all(1.0f / 5040);
    p = p * r + 1.0f / 720; p = p * r + 1.0f / 120; p = p * r + 1.0f / 24; p = p * r + 1.0f / 6;
    p = p * r + 0.5f; p = p * r + 1.0f; p = p * r + 1.0f;
    return p * (vf)((n + 127) << 23);
}

struct Job {
    int K, G, DK, DV, page, table_stride;  // G: padded to a multiple of GB
    float scale, softcap;                  // softcap 0: none
};

template <int GB, class R>
inline void scores(const float* q, const R* const* rows, long head, int n, int DK, float scale, float* s) {
    constexpr int TU = ACCUMULATORS / GB;
    for (int j = 0; j < n; j += TU) {
        vf a[ACCUMULATORS] = {};
        for (int d = 0; d < DK; d += W) {
            vf x[GB];
            UNROLL for (int g = 0; g < GB; g++) x[g] = load(q + g * DK + d);
            UNROLL for (int u = 0; u < TU; u++) {
                const vf k = load(rows[j + u] + head + d);
                UNROLL for (int g = 0; g < GB; g++) a[u * GB + g] += k * x[g];
            }
        }
        UNROLL for (int i = 0; i < ACCUMULATORS; i += 4) { v4 r = sums(a + i) * scale; std::memcpy(s + j * GB + i, &r, sizeof r); }
    }
}

template <int GB, int ND, class R>
inline void mix(const float* s, const R* const* rows, long head, int n, int DV, int d, float* acc) {
    vf a[GB * ND] = {};  // summed from zero: a tile's sum is added to the long one once, which keeps its rounding small
    for (int j = 0; j < n; j++) {
        vf v[ND];
        UNROLL for (int e = 0; e < ND; e++) v[e] = load(rows[j] + head + d + e * W);
        UNROLL for (int g = 0; g < GB; g++) {
            const vf p = all(s[j * GB + g]);
            UNROLL for (int e = 0; e < ND; e++) a[g * ND + e] += v[e] * p;
        }
    }
    UNROLL for (int g = 0; g < GB; g++)
        UNROLL for (int e = 0; e < ND; e++) { float* o = acc + g * DV + d + e * W; store(o, load(o) + a[g * ND + e]); }
}

// GB query heads of one KV head over one tile. s [C][GB]; m, l [GB]; acc [GB][DV].
template <int GB, class R>
inline void tile(const Job& J, const float* q, const R* const* kr, long kh, const R* const* vr, long vh_, int n, float* acc, float* m, float* l) {
    alignas(64) float s[C * GB];
    scores<GB>(q, kr, kh, n, J.DK, J.scale, s);
    if (J.softcap > 0) for (int i = 0; i < n * GB; i++) s[i] = J.softcap * std::tanh(s[i] / J.softcap);
    float top[GB], was[W], factor[W];
    bool higher = false;
    for (int g = 0; g < GB; g++) {
        top[g] = m[g];
        for (int j = 0; j < n; j++) top[g] = s[j * GB + g] > top[g] ? s[j * GB + g] : top[g];
        higher |= top[g] > m[g];
    }
    for (int j = n * GB; j < C * GB; j++) s[j] = -INFINITY;
    if (higher) {
        for (int g = 0; g < W; g++) was[g] = g < GB ? m[g] - top[g] : 0.0f;
        store(factor, exp_of(load(was)));
        for (int g = 0; g < GB; g++) {
            l[g] *= factor[g]; m[g] = top[g];
            for (int d = 0; d < J.DV; d += W) store(acc + g * J.DV + d, load(acc + g * J.DV + d) * factor[g]);
        }
    }
    vf base;
    for (int i = 0; i < W; i++) base[i] = m[i % GB];
    for (int i = 0; i < C * GB; i += W) store(s + i, exp_of(load(s + i) - base));
    for (int g = 0; g < GB; g++) { float sum = 0; for (int j = 0; j < n; j++) sum += s[j * GB + g]; l[g] += sum; }
    constexpr int ND = 8 / GB;
    int d = 0;
    for (; d + ND * W <= J.DV; d += ND * W) mix<GB, ND>(s, vr, vh_, n, J.DV, d, acc);
    for (; d < J.DV; d += W) mix<GB, 1>(s, vr, vh_, n, J.DV, d, acc);
}

template <class T>
inline void fetch(const T* p, long count) {
    for (long i = 0; i < count; i += 64 / (long)sizeof(T)) __builtin_prefetch(p + i, 0, 2);
}

// Tokens [t0, t1) of one sequence, all heads. q [K][G][DK]; acc [K][G][DV]; m, l [K][G].
template <class T, int GB>
void part(const Job& J, const float* q, const T* keys, const T* values, const int32_t* table, int t0, int t1, float* acc, float* m, float* l) {
    const long k_row = (long)J.K * J.DK, v_row = (long)J.K * J.DV;
    const bool latent = values == nullptr, widen = latent && sizeof(T) < 4 && J.G >= 4 * GB;  // widened once, read by every head
    std::vector<float> wide(widen ? (size_t)C * J.DK : 0);
    std::fill(m, m + J.K * J.G, -INFINITY);
    std::fill(l, l + J.K * J.G, 0.0f);
    std::fill(acc, acc + (long)J.K * J.G * J.DV, 0.0f);
    auto at = [&](int t) { return (long)table[t / J.page] * J.page + t % J.page; };
    const T *kr[C], *vr[C];
    const float* wr[C];
    for (int t = t0; t < t1; t += C) {
        const int n = std::min(C, t1 - t), ahead = std::min(C, t1 - t - n);
        for (int j = 0; j < C; j++) {  // a ragged tile reads its last row again; what comes of it is not used
            const long slot = at(t + std::min(j, n - 1));
            kr[j] = keys + slot * k_row;
            vr[j] = latent ? kr[j] : values + slot * v_row;
        }
        if (widen)
            for (int j = 0; j < C; j++) {
                float* w = wide.data() + (long)j * J.DK;
                wr[j] = w;
                if (j < n) for (int d = 0; d < J.DK; d += W) store(w + d, load(kr[j] + d));
            }
        const int shares = J.K * (J.G / GB);
        for (int h = 0, share = 0; h < J.K; h++)
            for (int g = 0; g < J.G; g += GB, share++) {
                for (int j = ahead * share / shares; j < ahead * (share + 1) / shares; j++) {
                    const long slot = at(t + n + j);
                    fetch(keys + slot * k_row, k_row);
                    if (!latent) fetch(values + slot * v_row, v_row);
                }
                const long i = (long)h * J.G + g;
                if (widen) tile<GB>(J, q + i * J.DK, wr, 0, wr, 0, n, acc + i * J.DV, m + i, l + i);
                else tile<GB>(J, q + i * J.DK, kr, (long)h * J.DK, vr, latent ? (long)h * J.DK : (long)h * J.DV, n, acc + i * J.DV, m + i, l + i);
            }
    }
}

template <class T, int GB>
void run(Job J, const float* q, const T* keys, const T* values, const int32_t* table, const int32_t* begins, const int32_t* ends, const float* sinks,
         int B, int threads, float* out) {
    const int real = J.G;
    J.G = (real + GB - 1) / GB * GB;
    const long heads = (long)J.K * J.G;
    const int splits = std::max(1, threads > 1 ? (2 * threads + B - 1) / B : 1);
    std::vector<float> padded((size_t)B * heads * J.DK), acc((size_t)B * splits * heads * J.DV), m((size_t)B * splits * heads), l(m.size());
    for (long bk = 0; bk < (long)B * J.K; bk++) std::memcpy(&padded[bk * J.G * J.DK], q + bk * real * J.DK, sizeof(float) * real * J.DK);
    std::atomic<long> next{0};
    auto worker = [&] {
        for (long item; (item = next++) < (long)B * splits;) {
            const long b = item / splits;
            const int lo = begins[b], hi = ends[b], step = ((hi - lo + splits - 1) / splits + C - 1) / C * C;
            const int t0 = std::min(hi, lo + (int)(item % splits) * step), t1 = std::min(hi, t0 + step);
            part<T, GB>(J, &padded[b * heads * J.DK], keys, values, table + b * J.table_stride, t0, t1, &acc[item * heads * J.DV], &m[item * heads], &l[item * heads]);
        }
    };
    std::vector<std::thread> team;
    for (int i = 1; i < threads; i++) team.emplace_back(worker);
    worker();
    for (auto& t : team) t.join();
    for (long b = 0; b < B; b++)
        for (long h = 0; h < J.K; h++)
            for (int g = 0; g < real; g++) {
                float top = -INFINITY, total = 0.0f, *o = out + ((b * J.K + h) * real + g) * J.DV;
                std::fill(o, o + J.DV, 0.0f);
                if (begins[b] >= ends[b]) continue;  // a sequence without tokens: zeros
                for (int s = 0; s < splits; s++) top = std::max(top, m[(b * splits + s) * heads + h * J.G + g]);
                if (sinks) { const float sink = sinks[h * real + g]; top = std::max(top, sink); total = std::exp(sink - top); }
                for (int s = 0; s < splits; s++) {
                    const long i = (b * splits + s) * heads + h * J.G + g;
                    if (l[i] == 0.0f) continue;
                    const float w = std::exp(m[i] - top);
                    total += w * l[i];
                    for (int d = 0; d < J.DV; d++) o[d] += w * acc[i * J.DV + d];
                }
                for (int d = 0; d < J.DV; d++) o[d] /= total;
            }
}

template <class T>
void any(const float* q, const void* keys, const void* values, const int32_t* table, const int32_t* begins, const int32_t* ends, const float* sinks,
         const int32_t* sizes, float scale, float softcap, float* out) {
    const Job J = {sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], scale, softcap};
    const auto f = J.G == 1 ? run<T, 1> : run<T, 4>;
    f(J, q, (const T*)keys, (const T*)values, table, begins, ends, sinks, sizes[0], sizes[7], out);
}

}  // namespace

extern "C" int paged_width() { return W; }
// sizes: B, K, G, DK, DV, page, table_stride, threads. q [B, K, G, DK] and out [B, K, G, DV] in float. ELEMENT: float, or uint16_t for bf16.
extern "C" void paged_decode(const float* q, const void* k, const void* v, const int32_t* table, const int32_t* begins, const int32_t* ends,
                             const float* sinks, const int32_t* sizes, float scale, float softcap, float* out) {
    any<ELEMENT>(q, k, v, table, begins, ends, sinks, sizes, scale, softcap, out);
}
