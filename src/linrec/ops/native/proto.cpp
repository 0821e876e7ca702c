#define LINREC_ISA avx2
#define LINREC_LANES 8
#include <type_traits>
#include "kernel.hpp"
using namespace linrec;
static Rows<const float> cr(const float*p,int64_t H,int64_t N,int64_t D){return {p,H*N*D,N*D,D};}
static Rows<float> mr(float*p,int64_t H,int64_t N,int64_t D){return {p,H*N*D,N*D,D};}
extern "C" void fwd(int64_t B,int64_t H,int64_t N,int64_t D,const float*q,const float*k,const float*v,float*o,const uint8_t*keep,const float*g,int elu,int causal){
  Forward<float> p{B,H,N,D,cr(q,H,N,D),cr(k,H,N,D),cr(v,H,N,D),mr(o,H,N,D),keep,g,(bool)elu,(bool)causal};
  avx2::Scratch s; for(int64_t b=0;b<B;b++)for(int64_t h=0;h<H;h++) avx2::forward(p,b,h,s);
}
extern "C" void bwd(int64_t B,int64_t H,int64_t N,int64_t D,const float*q,const float*k,const float*v,const float*dout,float*dq,float*dk,float*dv,double*dg,const uint8_t*keep,const float*g,int elu,int causal){
  Forward<float> f{B,H,N,D,cr(q,H,N,D),cr(k,H,N,D),cr(v,H,N,D),Rows<float>{},keep,g,(bool)elu,(bool)causal};
  Backward<float> p{f,cr(dout,H,N,D),mr(dq,H,N,D),mr(dk,H,N,D),mr(dv,H,N,D),dg};
  avx2::Scratch s; for(int64_t b=0;b<B;b++)for(int64_t h=0;h<H;h++) avx2::backward(p,b,h,s);
}
