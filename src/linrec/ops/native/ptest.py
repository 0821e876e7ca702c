import ctypes, torch, time, sys
torch.set_num_threads(1)
from linrec import ops
lib=ctypes.CDLL("/tmp/proto.so")
P=lambda x: ctypes.c_void_p(x.data_ptr()) if x is not None else None
I=lambda x: ctypes.c_int64(x)
def fwd(q,k,v,keep,g,elu,causal):
    B,H,N,D=q.shape; o=torch.empty_like(q)
    lib.fwd(I(B),I(H),I(N),I(D),P(q),P(k),P(v),P(o),P(keep),P(g),elu,causal); return o
def bwd(q,k,v,do,keep,g,elu,causal):
    B,H,N,D=q.shape; dq,dk,dv=(torch.empty_like(q) for _ in range(3)); dg=torch.zeros(B,H,dtype=torch.float64)
    lib.bwd(I(B),I(H),I(N),I(D),P(q),P(k),P(v),P(do),P(dq),P(dk),P(dv),P(dg),P(keep),P(g),elu,causal); return dq,dk,dv,dg.sum(0)
worst=0
for name in ("linrec","linrec-decay","linrec-without-elu"):
  for causal in (1,0):
    for D in (8,16,12):
      for N in (1,5,70):
        B,H=3,2
        torch.manual_seed(N)
        q,k,v,do=(torch.randn(B,H,N,D) for _ in range(4))
        keep=torch.rand(B,N)>.3; keep[:,0]=True
        g=(-torch.rand(H)*.3).contiguous() if name=="linrec-decay" else None
        a=[x.double().requires_grad_() for x in (q,k,v)]
        gd=g.double().requires_grad_() if g is not None else None
        o=ops.attend(name,*a,keep=keep,causal=bool(causal),decay=gd)
        (o*(do*keep[:,None,:,None]).double()).sum().backward()
        k8=keep.to(torch.uint8)
        e=name!="linrec-without-elu"
        mo=fwd(q,k,v,k8,g,int(e),causal); md=bwd(q,k,v,do,k8,g,int(e),causal)
        err=[(mo-o).abs().max().item()]+[((x-y.grad).abs().max()/(y.grad.abs().max()+1e-3)).item() for x,y in zip(md,a)]
        if g is not None: err.append(((md[3]-gd.grad).abs()/(gd.grad.abs()+1e-3)).max().item())
        worst=max(worst,max(err))
        if max(err)>1e-4: print(name,causal,D,N,["%.1e"%x for x in err])
print("worst",worst)
def t(f,n=5):
    f(); best=9
    for _ in range(n):
        a=time.process_time(); f(); best=min(best,time.process_time()-a)
    return best*1000
import torch.nn.functional as F
for B,N,D in ((20,200,16),(4,1000,16),(1,4000,16),(10,200,32),(5,200,64)):
    H=8
    q,k,v,do=(torch.randn(B,H,N,D) for _ in range(4)); g=-torch.rand(H)*.1
    def sd():
        a=[x.detach().requires_grad_() for x in (q,k,v)]
        F.scaled_dot_product_attention(*a,is_causal=True).backward(do)
    for causal in (1,0):
        f=t(lambda: fwd(q,k,v,None,g,1,causal)); b=t(lambda: bwd(q,k,v,do,None,g,1,causal))
        print(B,N,D,"causal" if causal else "around",f"fwd {f:.1f} bwd {b:.1f}", f"sdpa f+b {t(sd,3):.1f}" if causal else "")
